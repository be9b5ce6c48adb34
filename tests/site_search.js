// Asks the search of the built site itself: its worker, as a browser runs it.
// node tests/site_search.js SITE reads questions as JSON and prints their pages, the best first.
const fs = require("fs");
const vm = require("vm");

const site = process.argv[2];
const questions = JSON.parse(fs.readFileSync(0, "utf8"));
const workers = `${site}/assets/javascripts/workers`;
const [script] = fs.readdirSync(workers).filter((name) => /^search\..*\.js$/.test(name));
const index = JSON.parse(fs.readFileSync(`${site}/search/search_index.json`, "utf8"));

const waiting = [];
let receive;
const page = vm.createContext({
  console,
  URL,
  importScripts() {},
  addEventListener: (_, listener) => (receive = listener),
  postMessage: (message) => waiting.shift()(message),
});
vm.runInContext("var self = globalThis", page);
vm.runInContext(fs.readFileSync(`${workers}/${script}`, "utf8"), page);

const ask = (type, data) =>
  new Promise((answered) => {
    waiting.push(answered);
    receive({ data: { type, data } });
  });

(async () => {
  await ask(0, { ...index, options: { suggest: false } });
  const answers = [];
  for (const question of questions) {
    const { data } = await ask(2, question);
    answers.push(data.items.map(([first]) => first.location.split("#")[0]));
  }
  console.log(JSON.stringify(answers));
})();
