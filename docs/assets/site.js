// What scrolls sideways is reached by keys in every browser: the theme wraps wide tables after the page is there.
const reach = () =>
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((each) => {
    each.tabIndex = 0;
  });
new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
reach();
