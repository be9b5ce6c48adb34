"""Calls of each function over the columns of `nasty_rows`, which Spark and Lakebed both compute."""

CALLS: list[str] = []


def _add(text: str) -> None:
    CALLS.extend(line.strip() for line in text.splitlines() if line.strip())


# Any values
_add("""
coalesce(s, t) ; coalesce(i, l) ; coalesce(i, d, m) ; coalesce(ai, bi) ; coalesce(null, i) ; coalesce(f, l)
nvl(i, 5) ; ifnull(s, 'x') ; nvl(m, i) ; ifnull(day, ts)
greatest(i, k) ; greatest(d, x) ; greatest(f, d) ; greatest(s, t) ; greatest(day, day2) ; greatest(m, i, tiny) ; greatest(d, -0.0D) ; greatest(0.0D, d) ; greatest(y, X'80')
least(i, k) ; least(d, x) ; least(f, d) ; least(s, t) ; least(ts, ts2) ; least(m, i, tiny) ; least(d, -0.0D) ; least(0.0D, d) ; least(flag, true)
if(flag, i, k) ; if(i > 0, s, t) ; if(null, 1, 2.5) ; if(flag, day, ts)
nullif(i, k) ; nullif(d, x) ; nullif(d, d) ; nullif(s, t) ; nullif(m, 15) ; nullif(i, 1.0) ; nullif(d, 0)
nvl2(i, s, t) ; nvl2(s, 1, 2.5)
nullifzero(i) ; nullifzero(d) ; nullifzero(m) ; zeroifnull(i) ; zeroifnull(d) ; zeroifnull(m) ; zeroifnull(l)
equal_null(i, k) ; equal_null(d, x) ; equal_null(s, t) ; equal_null(null, i) ; equal_null(d, f)
isnull(i) ; isnull(s) ; isnull(ai) ; isnotnull(d) ; isnotnull(mp) ; isnotnull(null)
boolean(i) ; boolean(d) ; boolean(s) ; tinyint(i) ; tinyint(d) ; smallint(l) ; smallint(n) ; int(d) ; int(s) ; int(n) ; int(f) ; int(m)
int(ts) ; bigint(d) ; bigint(n) ; bigint(m) ; bigint(ts) ; float(d) ; float(n) ; double(f) ; double(n) ; double(m) ; double(i)
string(i) ; string(d) ; string(f) ; string(m) ; string(ts) ; string(day) ; string(flag) ; binary(s) ; date(ts) ; date(s) ; timestamp(day) ; timestamp(s)
""")

# Texts and bytes
_add("""
length(s) ; length(y) ; char_length(s) ; character_length(t) ; len(i) ; length(d)
octet_length(s) ; octet_length(y) ; bit_length(s) ; bit_length(y) ; bit_length(i)
ascii(s) ; ascii(t) ; ascii(i) ; levenshtein(s, t) ; levenshtein(s, 'abc') ; levenshtein(s, t, 2)
soundex(s) ; soundex(t) ; soundex('Ashcraft') ; soundex(upper(s)) ; luhn_check(s) ; luhn_check(n) ; is_valid_utf8(s)
startswith(s, t) ; startswith(s, '') ; endswith(s, t) ; contains(s, t) ; contains(s, i) ; endswith(s, 'C')
instr(s, t) ; instr(s, '') ; instr(t, s) ; locate(t, s) ; locate(t, s, k) ; locate('a', s, 2) ; locate('', s, k) ; locate(t, s, null)
position(t, s) ; position(t, s, k) ; position('b' in s) ; find_in_set(t, s) ; find_in_set('c', s) ; find_in_set('', s) ; find_in_set(s, 'abc,ß,,x')
substring(s, k) ; substring(s, k, 2) ; substring(s, 0, k) ; substr(s, k, k) ; substr(s, -2, i) ; substr(s, i, k) ; substring(s, 2147483647, 1)
substring(s from 2 for 3) ; substring(s, -3, 2) ; substr(s, -100, 99) ; substring(l, 1, 3) ; substr(s, -2147483647-1, 5)
left(s, k) ; left(s, i) ; right(s, k) ; right(s, i) ; left(s, 2) ; right(s, 2)
split_part(s, t, k) ; split_part(s, ',', 2) ; split_part(s, '.', -1) ; split_part(s, '', 1) ; split_part(s, ',', 0) ; split_part(s, ',', i)
substring_index(s, t, k) ; substring_index(s, '.', 2) ; substring_index(s, '.', -2) ; substring_index(s, 'aa', -1) ; substring_index(s, 'aa', 1) ; substring_index(s, '', 1)
substring_index('aaaaa', 'aa', k) ; substring_index('a.b.c.d', '.', k) ; substring_index('xababax', 'aba', k)
trim(s) ; ltrim(s) ; rtrim(s) ; btrim(s) ; btrim(s, 'a') ; btrim(s, t) ; ltrim('ab', s) ; rtrim('cC', s) ; trim('a', s) ; trim(both 'ab' from s)
trim(leading t from s) ; trim(trailing t from s) ; btrim(s, '') ; trim(from s)
upper(s) ; lower(s) ; ucase(t) ; lcase(t) ; initcap(s) ; initcap(upper(s)) ; initcap('ǆab ǆ-x a.b a_b  ß ŉa')
lpad(s, k) ; lpad(s, k, t) ; lpad(s, 5, '') ; lpad(s, 7, 'xy') ; lpad(s, 7, t) ; rpad(s, k) ; rpad(s, k, t) ; rpad(s, 7, 'ßz') ; rpad(s, 7, '') ; rpad(s, 7, t)
repeat(s, k) ; repeat(t, 3) ; repeat(s, 0) ; space(k) ; space(-1) ; replace(s, t) ; replace(s, t, 'X') ; replace(s, 'a') ; replace(s, '', 'y') ; replace(s, 'aa', 'a')
translate(s, 'abc', 'xy') ; translate(s, 'aab', 'xyz') ; translate(s, t, 'Q') ; translate(s, '', 'x') ; translate(s, 'ß👩', 'sW') ; translate(s, 'ab', '')
overlay(s placing 'XY' from 2) ; overlay(s, t, k) ; overlay(s, t, k, k) ; overlay(s, 'ß', 3, 0) ; overlay(s, 'abc', 1, -1) ; overlay(s, t, i)
s || t ; s || i ; s || d ; concat(s, t, 'x') ; concat() ; concat(s) ; concat(y, y) ; concat(ai, bi) ; concat(s, day) ; concat(i, m) ; ai || bi ; y || X'01'
concat_ws(',', s, t) ; concat_ws(t, s, s) ; concat_ws(',') ; concat_ws(',', sa) ; concat_ws('-', s, sa, t) ; concat_ws(null, s) ; concat_ws(',', null, s) ; concat_ws(t, sa) ; concat_ws(',', i, d)
elt(k, s, t) ; elt(1, s, t) ; elt(2, s, t) ; elt(3, s, t) ; elt(k, 'a', null, 'c', 'd', 'e')
chr(i) ; char(l) ; chr(0) ; chr(256) ; chr(k + 160) ; hex(i) ; hex(l) ; hex(s) ; hex(y) ; hex(-1) ; hex(tiny) ; unhex(n) ; unhex(s) ; unhex('0g') ; unhex('')
base64(y) ; base64(binary(s)) ; base64(s) ; base64(repeat(s, 30)) ; unbase64(s) ; unbase64('YWJj') ; unbase64(t) ; unbase64(n) ; unbase64('YQ==') ; unbase64(t || 'YWI=x') ; unbase64('Y WJ  j') ; bin(i) ; bin(l) ; bin(k)
encode(s, 'UTF-8') ; encode(t, 'utf-8') ; decode(y, 'UTF-8') ; decode(binary(s), 'utf-8') ; decode(i, 1, 'a', 2, 'b') ; decode(s, 'abc', 1, null, 2, 3) ; decode(k, null, 'n', 'd')
to_binary(n, 'hex') ; to_binary(n) ; to_binary(s, 'utf-8') ; try_to_binary(n, 'hex') ; try_to_binary(s) ; try_to_binary(s, 'UTF-8')
make_valid_utf8(s) ; validate_utf8(s) ; try_validate_utf8(s) ; url_encode(s) ; url_encode('a~b*c-d_e.f g/h') ; url_decode(s) ; url_decode(url_encode(s)) ; url_decode('a%') ; url_decode('%C3%9F+%ff')
""")

# Numbers
_add("""
abs(i) ; abs(l) ; abs(d) ; abs(m) ; abs(tiny) ; abs(n) ; negative(i) ; negative(d) ; negative(m) ; negative(small) ; positive(i) ; positive(d) ; positive(m)
sign(d) ; signum(m) ; sign(i) ; signum(f) ; mod(i, k) ; mod(d, x) ; mod(m, i) ; mod(l, tiny) ; pmod(i, k) ; pmod(d, x) ; pmod(m, 2.5) ; pmod(l, k) ; pmod(tiny, small) ; pmod(-7, i) ; pmod(-7L, l) ; pmod(f, 1.5F) ; pmod(m, -0.70)
try_add(i, i) ; try_add(l, l) ; try_add(d, x) ; try_add(m, m) ; try_subtract(i, l) ; try_subtract(i, 1) ; try_multiply(i, i) ; try_multiply(m, m) ; try_multiply(l, 2) ; try_divide(i, k) ; try_divide(d, x) ; try_divide(m, i) ; try_mod(i, k) ; try_mod(m, 0) ; try_mod(d, x) ; try_divide(i, 0)
ceil(d) ; ceil(m) ; ceil(i) ; ceil(f) ; ceiling(l) ; floor(d) ; floor(m) ; floor(tiny) ; floor(f) ; ceil(n) ; floor(1.5)
round(d) ; round(d, 2) ; round(d, -2) ; round(f, 1) ; round(f) ; round(m, 1) ; round(m) ; round(m, -1) ; round(m, 5) ; round(i, -1) ; round(i, 2) ; round(l, -3) ; round(tiny, -1) ; round(2.675, 2) ; round(m, -11) ; round(d, 400) ; round(l, -19) ; round(i, -10)
bround(d) ; bround(d, 2) ; bround(d, -2) ; bround(f, 1) ; bround(m, 1) ; bround(m) ; bround(m, -1) ; bround(i, -1) ; bround(25, -1) ; bround(35, -1) ; bround(m, 5) ; rint(d) ; rint(m) ; rint(f) ; rint(0.5D) ; rint(-0.5D) ; rint(1.5D)
sqrt(d) ; sqrt(i) ; sqrt(m) ; cbrt(d) ; cbrt(i) ; cbrt(m) ; cbrt(f) ; cbrt(l) ; pow(d, x) ; pow(d, 2) ; power(i, k) ; pow(m, 0.5) ; pow(1, d) ; pow(-1, d) ; pow(d, 0)
exp(d) ; exp(i) ; exp(m) ; expm1(d) ; expm1(m) ; ln(d) ; ln(i) ; log(d) ; log(k, d) ; log(2, d) ; log(d, x) ; log(1, m) ; log10(d) ; log10(m) ; log2(d) ; log2(i) ; log1p(d) ; log1p(m) ; e() ; pi() ; factorial(k) ; factorial(i) ; factorial(20) ; factorial(tiny)
sin(d) ; cos(d) ; tan(d) ; cot(d) ; sec(d) ; csc(d) ; asin(d) ; acos(d) ; atan(d) ; atan2(d, x) ; atan2(m, i) ; sinh(d) ; cosh(d) ; tanh(d) ; asinh(d) ; acosh(d) ; atanh(d) ; sin(i) ; cos(m) ; tan(i) ; cot(i) ; sec(m) ; csc(m) ; asinh(m) ; acosh(i) ; atanh(m / 1e9) ; sinh(m / 1e6) ; tanh(k)
degrees(d) ; radians(d) ; degrees(i) ; radians(m) ; hypot(d, x) ; hypot(i, k) ; hypot(m, 4) ; isnan(d) ; isnan(f) ; isnan(i) ; nanvl(d, x) ; nanvl(f, 1.5F) ; nanvl(f, d) ; nanvl(d, 0)
bit_count(i) ; bit_count(l) ; bit_count(tiny) ; bit_count(flag) ; bit_get(i, k) ; getbit(l, 63) ; bit_get(tiny, 7) ; bit_get(small, k)
shiftleft(i, k) ; shiftleft(l, k) ; shiftleft(tiny, 3) ; shiftleft(i, i) ; shiftright(i, k) ; shiftright(l, i) ; shiftrightunsigned(i, k) ; shiftrightunsigned(l, k) ; shiftrightunsigned(i, 0) ; i << 3 ; i >> 2 ; l << k ; ~i ; ~l ; ~tiny
conv(n, 16, 10) ; conv(n, 10, 16) ; conv(n, 36, 2) ; conv(n, 16, -10) ; conv(n, 10, -16) ; conv(n, k, 10) ; conv(s, 16, 10) ; conv(i, 10, 2) ; conv(l, 10, 36) ; conv(n, 10, 37) ; conv('18446744073709551615', 10, -2)
width_bucket(d, 0, 10, 5) ; width_bucket(d, 10, -10, k) ; width_bucket(m, 0, 2, 4) ; width_bucket(i, k, 10, 3) ; width_bucket(d, x, 5, l)
""")

# Arrays, maps and structs
_add("""
array(i, k) ; array(i, d) ; array(s) ; array(i, null) ; array(1.5, 2) ; array(array(i), ai) ; size(ai) ; size(mp) ; cardinality(sa) ; array_size(ai) ; size(aa)
array_contains(ai, i) ; array_contains(ai, 3) ; array_contains(ad, d) ; array_contains(sa, t) ; array_contains(ai, l) ; array_contains(ad, 0.0D) ; array_contains(ad, double('NaN')) ; array_contains(aa, ai)
array_position(ai, i) ; array_position(sa, 'a') ; array_position(ad, d) ; array_position(ad, double('NaN')) ; array_append(ai, i) ; array_append(sa, t) ; array_append(ai, null) ; array_append(ai, l) ; array_prepend(ai, i) ; array_prepend(sa, null)
array_remove(ai, i) ; array_remove(ai, 3) ; array_remove(sa, t) ; array_remove(ad, 0.0D) ; array_remove(ad, double('NaN')) ; array_insert(ai, k, i) ; array_insert(sa, k, t) ; array_insert(ai, 1, null) ; array_insert(ai, -1, 9) ; array_insert(ai, i % 8, 9)
array_repeat(s, k) ; array_repeat(i, 2) ; array_repeat(ai, 2) ; array_compact(ai) ; array_compact(sa) ; array_compact(aa) ; array_distinct(ai) ; array_distinct(sa) ; array_distinct(ad) ; array_distinct(aa)
array_union(ai, bi) ; array_union(sa, array(t)) ; array_union(ad, ad) ; array_union(ad, array(d, x)) ; array_intersect(ai, bi) ; array_intersect(ad, array(d, x)) ; array_intersect(sa, array(t, 'a')) ; array_except(ai, bi) ; array_except(bi, ai) ; array_except(ad, array(0.0D, double('NaN'))) ; array_except(ad, array(1.5D)) ; array_except(sa, array(t, null))
arrays_overlap(ai, bi) ; arrays_overlap(sa, array(t)) ; arrays_overlap(ad, array(d)) ; arrays_overlap(ai, ai) ; arrays_zip(ai, bi) ; arrays_zip(ai, sa, array(i)) ; array_join(sa, ',') ; array_join(sa, t) ; array_join(sa, '-', '?') ; array_join(sa, ',', t) ; array_join(sa, null)
array_max(ai) ; array_max(ad) ; array_max(sa) ; array_min(ai) ; array_min(ad) ; array_min(sa) ; array_max(array(d, x)) ; array_min(array(d, x)) ; slice(ai, k, 2) ; slice(ai, 1, k) ; slice(sa, -2, 1) ; slice(sa, k, k) ; slice(ai, i, 2) ; slice(ai, 2, 2147483647)
sort_array(ai) ; sort_array(ai, false) ; sort_array(sa) ; sort_array(sa, false) ; sort_array(ad) ; sort_array(ad, false) ; array_sort(ai) ; array_sort(ad) ; array_sort(sa) ; sequence(1, k) ; sequence(k, 5) ; sequence(1, 10, k) ; sequence(k, 1, -2) ; sequence(5L, 1) ; sequence(tiny, tiny) ; sequence(0, 9, 4) ; sequence(3, 3, 0)
flatten(aa) ; flatten(array(ai, bi)) ; reverse(ai) ; reverse(s) ; reverse(sa) ; reverse(t) ; reverse(i) ; reverse(aa)
ai[k] ; ai[0] ; sa[1] ; mp['a'] ; mp[t] ; aa[0][0] ; aa[1] ; sa[i] ; element_at(ai, k) ; element_at(ai, 1) ; element_at(ai, -1) ; element_at(mp, 'b') ; element_at(mp, t) ; element_at(sa, i) ; try_element_at(ai, k) ; try_element_at(sa, -2) ; try_element_at(mp, t) ; try_element_at(ai, i) ; get(ai, k) ; get(sa, 0) ; get(ai, i)
filter(ai, x -> x > 1) ; filter(ai, x -> x is null) ; filter(sa, (x, i) -> i > 0) ; filter(ai, v -> v = k) ; filter(aa, z -> size(z) > 0) ; transform(ai, x -> x + 1) ; transform(ai, (x, n) -> x * n) ; transform(sa, x -> upper(x)) ; transform(aa, y -> transform(y, z -> z + size(y))) ; transform(ai, x -> x + k) ; transform(sa, x -> concat(x, s)) ; transform(sa, (e, j) -> j)
exists(ai, x -> x > 2) ; exists(sa, x -> x = t) ; exists(ai, x -> x is null) ; exists(ai, x -> x = k) ; forall(ai, x -> x > 0) ; forall(sa, x -> length(x) = 1) ; forall(ai, x -> x <> k) ; forall(ai, x -> x is not null)
aggregate(ai, 0, (acc, x) -> acc + x) ; aggregate(ai, 0, (acc, x) -> acc + coalesce(x, 0) % 1000) ; reduce(sa, '', (acc, x) -> acc || coalesce(x, '-')) ; aggregate(ai, 0L, (a, x) -> a + coalesce(x, 0), a -> a * 2) ; aggregate(ai, k, (acc, x) -> greatest(acc, x)) ; reduce(ad, 0D, (acc, x) -> acc + x, acc -> acc / 2) ; aggregate(bi, 0L, (p, q) -> p + q * k)
zip_with(ai, bi, (x, y) -> x + y) ; zip_with(ai, bi, (x, y) -> coalesce(x, 0L) - coalesce(y, k)) ; zip_with(sa, ai, (a, b) -> concat_ws('-', a, b))
map(s, i) ; map('a', 1, 'b', k) ; map(t, i, 'a', k) ; map(i, s) ; map(day, d) ; map_from_arrays(sa, ai) ; map_from_arrays(array('x', 'y'), array(i, k)) ; map_from_arrays(ai, ai) ; map_from_entries(map_entries(mp)) ; map_from_entries(array(named_struct('k', t, 'v', i), named_struct('k', s, 'v', k))) ; map_from_entries(arrays_zip(sa, ai))
map_keys(mp) ; map_values(mp) ; map_entries(mp) ; map_contains_key(mp, 'a') ; map_contains_key(mp, t) ; map_contains_key(mq, s) ; map_concat(mp, mq) ; map_concat(mp, map('a', k)) ; map_concat(mp) ; map_filter(mp, (k, v) -> v > 0) ; map_filter(mp, (k, v) -> k = t) ; map_filter(mp, (a, b) -> b is null)
transform_keys(mp, (k, v) -> upper(k)) ; transform_keys(mp, (k, v) -> v) ; transform_keys(mp, (k, v) -> 1) ; transform_values(mp, (k, v) -> v + 1) ; transform_values(mp, (a, v) -> concat(a, v)) ; transform_values(mp, (a, v) -> k) ; map_zip_with(mp, mq, (k, a, b) -> coalesce(a, 0) + coalesce(b, 0)) ; map_zip_with(mp, mp, (k, a, b) -> a + b) ; map_zip_with(mp, mq, (q, a, b) -> concat_ws(q, a, b))
str_to_map(s) ; str_to_map('a:1,b:2') ; str_to_map(s, ' ', 'l') ; str_to_map(t) ; str_to_map('a=1;b;c=', ';', '=') ; str_to_map(concat(t, ':1,b:2'))
struct(i, s) ; struct(i, i + 1) ; struct(st.a, k) ; named_struct('x', i, 'y', ai) ; named_struct('q', s).q ; st.a + 1 ; struct(i, s).s ; st.b ; get(array(st, st), 0).a ; named_struct('z', st).z.b
""")

# Hashes
_add("""
md5(s) ; md5(y) ; md5('') ; sha(s) ; sha1(y) ; sha2(s, 256) ; sha2(s, 0) ; sha2(y, 224) ; sha2(y, 384) ; sha2(s, 512) ; sha2(s, k) ; crc32(s) ; crc32(y)
hash(i) ; hash(s) ; hash(l) ; hash(d) ; hash(f) ; hash(m) ; hash(y) ; hash(day) ; hash(ts) ; hash(flag) ; hash(tiny) ; hash(i, s, d) ; hash(ai) ; hash(sa) ; hash(st) ; hash(null) ; hash(cast(m as decimal(30, 5))) ; hash(aa) ; hash(ad)
xxhash64(i) ; xxhash64(s) ; xxhash64(l) ; xxhash64(d) ; xxhash64(f) ; xxhash64(m) ; xxhash64(y) ; xxhash64(day) ; xxhash64(ts) ; xxhash64(flag) ; xxhash64(small) ; xxhash64(i, s, d) ; xxhash64(sa) ; xxhash64(st) ; xxhash64(repeat(s, 20)) ; xxhash64(cast(m as decimal(30, 5))) ; xxhash64(ad)
""")

# Patterns
_add(r"""
s rlike 'a' ; s rlike '^a' ; s rlike 'c$' ; s rlike 'end$' ; s rlike 'b$' ; s rlike '^$' ; s rlike '^.*$' ; s rlike 'x.y' ; s rlike '(?s)x.y' ; s rlike '(?i)SK' ; s rlike '(?i)[a-c]+$' ; s rlike '\\s' ; s rlike '^\\w+$' ; s rlike '\\d{2,}' ; s rlike '[^a-z]' ; s rlike 'ß|👩' ; s rlike '^.$' ; s rlike '\\D' ; s rlike '\\S\\s$' ; s rlike '\\r$' ; s rlike '[\\s]$' ; s rlike '\\n\\z'
regexp_like(s, 'b+') ; rlike(t, '^a|b$') ; regexp(s, '') ; regexp_like(s, '\\.') ; regexp_like(s, '^\\s*$') ; regexp_like(n, '^-?[0-9]+(\\.[0-9]+)?$') ; s rlike r'\w+@\w+|o w' ; s rlike '\\x41|\\u00df' ; s rlike '[.$^*-]' ; s rlike '[a\\-c]' ; s rlike '^[^,]*,' ; s rlike '\\\\' ; s rlike '\\"'
regexp_extract(s, '([a-z])([A-Z])?') ; regexp_extract(s, '([a-z]+)[., ]([a-z]*)', 2) ; regexp_extract(s, '[a-z]+$', 0) ; regexp_extract(s, '(.)$', 1) ; regexp_extract(s, '(\\w+)$') ; regexp_extract(s, '(a*)*', 1) ; regexp_extract(s, '(x)|(a)', 1) ; regexp_extract(s, '\\d+', 0) ; regexp_extract(s, '^(.*?)[,.]', 1) ; regexp_extract(s, '(.*)', 1)
regexp_extract_all(s, '([a-z])') ; regexp_extract_all(s, '\\w+', 0) ; regexp_extract_all(s, '(a)|b', 1) ; regexp_count(s, 'a') ; regexp_substr(s, '[b-d]+') ; regexp_instr(s, 'b') ; regexp_instr(s, '[.,]') ; regexp_instr(s, '') ; regexp_instr(s, 'x')
regexp_replace(s, 'a', 'X') ; regexp_replace(s, '([a-z])([A-Z])', '$2$1') ; regexp_replace(s, '(a)|b', '[$1]') ; regexp_replace(s, '\\s+', '') ; regexp_replace(s, 'a', '\\$') ; regexp_replace(s, 'b', '\\\\') ; regexp_replace(s, '[^a-z]', '$0$0') ; regexp_replace(s, '.', 'x') ; regexp_replace(t, 'a', '', 1)
split(s, ',') ; split(s, '') ; split(s, '[., ]') ; split(s, ',', 2) ; split(s, '', 3) ; split(s, ',', 0) ; split(s, '\\.') ; split(s, '(?i)B') ; split(t, 'b') ; regexp_replace(s, 'd$', '!') ; split(s, '[a-z]$') ; split(s, '\\s+', -1) ; split(s, ',', 1)
""")

# Dates and times
_add(r"""
year(day) ; year(ts) ; quarter(day) ; month(day) ; weekofyear(day) ; day(ts) ; dayofmonth(day) ; dayofyear(day) ; dayofweek(day) ; weekday(day) ; dayname(day) ; monthname(ts) ; hour(ts) ; minute(ts) ; second(ts) ; hour(day) ; year(date_format(day, 'yyyy-MM-dd'))
date_part('year', ts) ; date_part('SECONDS', ts) ; datepart('week', day) ; extract(year from ts) ; extract(second from ts) ; extract(dow from day) ; extract(dayofweek_iso from day) ; extract(yearofweek from day) ; extract(doy from ts) ; extract(hour from ts) ; extract(quarter from day) ; extract(minute from ts) ; extract(month from day) ; extract(second from day)
date_add(day, k) ; date_add(day, 1) ; dateadd(day, k) ; date_sub(day, k) ; date_add(ts, 3) ; dateadd(MONTH, k, ts) ; dateadd(DAY, 1, day) ; timestampadd(YEAR, k, ts) ; timestampadd(HOUR, i, ts) ; timestampadd(MICROSECOND, k, ts) ; timestampadd(WEEK, k, ts) ; timestampadd(QUARTER, 1, ts) ; timestampadd(SECOND, k, day) ; timestampadd(MINUTE, -5, ts) ; timestampadd(MILLISECOND, k, ts) ; timestampadd(MONTH, 1, ts)
datediff(day, day2) ; datediff(ts, ts2) ; date_diff(day, ts) ; datediff(MONTH, ts, ts2) ; timestampdiff(MONTH, ts, ts2) ; timestampdiff(YEAR, ts, ts2) ; timestampdiff(QUARTER, ts, ts2) ; timestampdiff(DAY, ts, ts2) ; timestampdiff(HOUR, ts, ts2) ; timestampdiff(SECOND, day, ts2) ; timestampdiff(WEEK, ts2, ts) ; timestampdiff(MICROSECOND, ts, ts2) ; timestampdiff(MONTH, ts2, ts) ; timestampdiff(MINUTE, ts, ts2) ; timestampdiff(MONTH, day, day2)
add_months(day, k) ; add_months(ts, 1) ; add_months(day, -12) ; months_between(ts, ts2) ; months_between(day, day2) ; months_between(ts, ts2, false) ; months_between(ts2, day, true) ; last_day(day) ; last_day(ts) ; next_day(day, 'Mon') ; next_day(day, 'sunday') ; next_day(day, 'TH') ; next_day(ts, 'FRI') ; next_day(day, t) ; next_day(day, 'xx')
trunc(day, 'year') ; trunc(day, 'quarter') ; trunc(day, 'MM') ; trunc(ts, 'week') ; date_trunc('year', ts) ; date_trunc('quarter', ts) ; date_trunc('MON', ts) ; date_trunc('week', ts) ; date_trunc('DD', ts) ; date_trunc('hour', ts) ; date_trunc('minute', ts) ; date_trunc('second', ts) ; date_trunc('millisecond', ts) ; date_trunc('microsecond', ts) ; date_trunc('month', day)
date_format(ts, 'yyyy-MM-dd HH:mm:ss') ; date_format(day, 'd.M.yy') ; date_format(ts, 'MMM MMMM E EEEE') ; date_format(ts, 'hh:mm a') ; date_format(ts, 'h K k HH H') ; date_format(ts, 'SSS S SSSSSS SSSSSSSSS') ; date_format(ts, "yyyy-MM-dd'T'HH:mm:ss.SSSXXX") ; date_format(ts, 'y Q QQ D DDD') ; date_format(day, "'it''s' yyyyMMdd") ; date_format(ts, 'm s X XX') ; date_format(date_add(day, 1), 'yyyy') ; date_format(ts, 'kk KK') ; date_format(ts, 'EE EEE') ; date_format(ts, '')
from_unixtime(i) ; from_unixtime(k, 'yyyy') ; from_unixtime(1700000000) ; from_unixtime(l % 1000000, 'HH:mm') ; unix_timestamp(ts) ; unix_timestamp(day) ; unix_timestamp(date_format(ts, 'yyyy-MM-dd HH:mm:ss')) ; unix_timestamp(s) ; to_unix_timestamp(ts) ; to_unix_timestamp('20240229', 'yyyyMMdd') ; to_unix_timestamp(s, 'yyyy-MM-dd')
to_date(s) ; to_date(ts) ; to_date(date_format(day, 'dd/MM/yyyy'), 'dd/MM/yyyy') ; to_date('2024-02-30', 'yyyy-MM-dd') ; to_date(n, 'yyyyMM') ; to_date('2024-3-1', 'yyyy-M-d') ; to_date('31.12.2024 x', 'dd.MM.yyyy') ; to_date(day) ; to_date(' 2024-01-01', 'yyyy-MM-dd') ; to_date('0000-01-01', 'yyyy-MM-dd') ; to_date('2024-01-01 11', 'yyyy-MM-dd HH')
to_timestamp(s) ; to_timestamp(day) ; to_timestamp(date_format(ts, 'yyyyMMddHHmmss'), 'yyyyMMddHHmmss') ; to_timestamp('2024-01-01 10:00:00.5', 'yyyy-MM-dd HH:mm:ss.SSS') ; to_timestamp('2024-01-01 10:00:00.123456', 'yyyy-MM-dd HH:mm:ss.SSSSSS') ; to_timestamp('2024-01-01T24:00', "yyyy-MM-dd'T'HH:mm") ; to_timestamp('1-2-2024 3:4:5', 'd-M-yyyy H:m:s') ; to_timestamp('2024-01-01 10:00:60', 'yyyy-MM-dd HH:mm:ss') ; to_timestamp('2024-02', 'yyyy-MM') ; to_timestamp('+12024-02-03', 'yyyy-MM-dd') ; to_timestamp('2024-1-1', 'yyyy-MM-dd') ; to_timestamp('20240101', 'yyyy-MM-dd') ; to_timestamp('٢024-01-01', 'yyyy-MM-dd') ; to_timestamp('2024-01-01 10:00:00.', 'yyyy-MM-dd HH:mm:ss.SSS')
to_timestamp_ltz(s) ; to_timestamp_ltz(date_format(ts, 'yyyy/MM/dd'), 'yyyy/MM/dd') ; to_timestamp_ntz(ts) ; to_timestamp_ntz('2024-01-01 05', 'yyyy-MM-dd HH') ; try_to_timestamp(s) ; try_to_timestamp(s, 'yyyy-MM-dd') ; try_to_timestamp('2024-02-30', 'yyyy-MM-dd') ; try_to_date(s) ; try_to_date('2024-02-29', 'yyyy-MM-dd') ; try_to_date(n, 'yyyy-MM-dd')
unix_seconds(ts) ; unix_millis(ts) ; unix_micros(ts) ; unix_date(day) ; date_from_unix_date(k) ; date_from_unix_date(small) ; timestamp_seconds(i) ; timestamp_seconds(l) ; timestamp_millis(l) ; timestamp_micros(l % 1000000000000) ; timestamp_micros(i) ; date_format(date_sub(day, 500), 'yyyy y yy') ; to_date('-0001-02-03', 'yyyy-MM-dd') ; to_date('-12345-02-03', 'yyyy-MM-dd') ; to_date('-0000-02-03', 'yyyy-MM-dd') ; to_date('+2024-02-03', 'yyyy-MM-dd') ; date_format(timestamp_micros(l div 4), 'yyyy yy') ; year(timestamp_millis(i * 100000L)) ; timestamp_millis(i) ; timestamp_seconds(tiny)
make_date(2024, k, 29) ; make_date(i, 2, 28) ; make_date(2023, 2, 29) ; make_date(k, 1, 1) ; make_date(2024, 1, i) ; make_timestamp(2024, k, 1, k, 0, 1.5) ; make_timestamp(2024, 1, 1, i, 59, 60) ; make_timestamp(2024, 1, 1, 0, 0, m) ; make_timestamp(2024, 2, 30, 0, 0, 0) ; make_timestamp_ltz(k, 1, 2, 3, 4, 5.123456) ; make_timestamp_ntz(2024, 12, 31, 23, 59, 59.999999) ; make_timestamp(2024, 1, 1, 1, k, 60.0) ; make_timestamp(2024, 1, 1, 1, 1, 60.5)
""")

CALLS[:] = [call.strip() for line in CALLS for call in line.split(" ; ")]
