"""Macros of DuckDB that have the meaning of Spark, where DuckDB's own functions differ.

Their names begin with `spark_`. A macro that reads a text gives NULL for one that it cannot read.
"""

from __future__ import annotations

from typing import Final

# White space and control characters, which Spark leaves out around a text that it reads.
_OUTER = "".join(map(chr, (*range(1, 0x21), 0x7F)))
_FRACTION = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"
_DAY = r"[0-9]{4}(-[0-9]{1,2}(-[0-9]{1,2})?)?"
_CLOCK = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}[ T][0-9]{1,2}:[0-9]{1,2}(:[0-9]{1,2}(\.[0-9]*)?)?"
_ZONE = r" ?(Z|UTC|[+-][0-9]{1,2}:[0-9]{1,2})"

_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # microseconds of 0001 and 9999

# Of letters, such as `Europe/Berlin` and `UTC+1`; of hours alone; with seconds.
_OTHER_ZONE = r"[A-Za-z]+|[+-][0-9]{1,2}:[0-9]{1,2}:|[+-][0-9]+$"

MACROS: Final = rf"""
CREATE MACRO spark_trimmed(s) AS trim(s, '{_OUTER}');
CREATE MACRO spark_given(x, s, problem) AS
  coalesce(x, CASE WHEN s IS NOT NULL THEN error('''' || left(s, 60) || ''' ' || problem) END);
CREATE MACRO spark_readable(s) AS
  CASE WHEN regexp_matches(spark_trimmed(s), '^([+-][0-9]{{4,7}}|[0-9]{{5,7}})($|-)') THEN
    error('''' || left(s, 60) || ''' lies outside the years 1 to 9999')
  WHEN regexp_matches(spark_trimmed(s), '^([0-9-]+[ T])?T?[0-9]{{1,2}}:[0-9:.]+ ?({_OTHER_ZONE})')
    AND NOT regexp_matches(spark_trimmed(s), '[0-9] ?(Z|UTC)$') THEN
    error('''' || left(s, 60) || ''' has a time zone in a form that is not read without Spark')
  WHEN regexp_matches(spark_trimmed(s), '^T?[0-9]{{1,2}}:[0-9]{{1,2}}') THEN
    error('''' || left(s, 60) || ''' has no date, which is not read without Spark')
  ELSE s END;
CREATE MACRO spark_whole(s) AS
  CASE WHEN regexp_full_match(s, '[+-]?[0-9]+') THEN s
  WHEN regexp_full_match(spark_trimmed(s), '[+-]?[0-9]+') THEN spark_trimmed(s) END;
CREATE MACRO spark_exact(s) AS
  CASE WHEN regexp_full_match(s, '{_FRACTION}') THEN s
  WHEN regexp_full_match(spark_trimmed(s), '{_FRACTION}') THEN spark_trimmed(s) END;
CREATE MACRO spark_real(s) AS
  CASE WHEN regexp_full_match(s, '{_FRACTION}') THEN s
  WHEN regexp_full_match(spark_trimmed(s), '(?i)({_FRACTION})[df]?') THEN
    regexp_replace(spark_trimmed(s), '[dDfF]$', '')
  WHEN regexp_full_match(spark_trimmed(s), '(?i)[+-]?inf(inity)?|nan') THEN spark_trimmed(s) END;
CREATE MACRO spark_truth(s) AS
  CASE WHEN lower(spark_trimmed(s)) IN ('t', 'true', 'y', 'yes', '1') THEN true
  WHEN lower(spark_trimmed(s)) IN ('f', 'false', 'n', 'no', '0') THEN false END;
CREATE MACRO spark_first_day(s) AS
  CASE length(s) - length(replace(s, '-', '')) WHEN 0 THEN s || '-01-01' WHEN 1 THEN s || '-01' ELSE s END;
CREATE MACRO spark_day(s) AS
  TRY_CAST(CASE WHEN regexp_full_match(spark_trimmed(s), '{_DAY}') THEN spark_first_day(spark_trimmed(s))
  WHEN regexp_matches(spark_trimmed(s), '^[0-9]{{4}}-[0-9]{{1,2}}-[0-9]{{1,2}}[ T]') THEN
    regexp_extract(spark_trimmed(s), '^[0-9]{{4}}-[0-9]{{1,2}}-[0-9]{{1,2}}') END AS DATE);
CREATE MACRO spark_seconds(s) AS
  CASE WHEN length(s) - length(replace(s, ':', '')) = 1 THEN s || ':00' ELSE s END;
CREATE MACRO spark_clock(s) AS
  TRY_CAST(CASE WHEN regexp_full_match(spark_trimmed(s), '{_DAY}') THEN
    spark_first_day(spark_trimmed(s)) || ' 00:00:00'
  WHEN regexp_full_match(spark_trimmed(s), '({_CLOCK})({_ZONE})?') THEN
    spark_seconds(regexp_replace(spark_trimmed(s), '{_ZONE}$', '')) END AS TIMESTAMP);
CREATE MACRO spark_minutes_east(s) AS
  CASE WHEN regexp_matches(s, ':[0-9.]+ ?[+-][0-9]{{1,2}}:[0-9]{{1,2}}$') THEN
    (CASE WHEN regexp_extract(s, '([+-])[0-9]{{1,2}}:[0-9]{{1,2}}$', 1) = '-' THEN -1 ELSE 1 END)
    * (CAST(regexp_extract(s, '[+-]([0-9]{{1,2}}):[0-9]{{1,2}}$', 1) AS INTEGER) * 60
       + CAST(regexp_extract(s, '[+-][0-9]{{1,2}}:([0-9]{{1,2}})$', 1) AS INTEGER)) ELSE 0 END;
CREATE MACRO spark_instant(s) AS
  spark_clock(s) - to_minutes(spark_minutes_east(spark_trimmed(s)));
CREATE MACRO spark_moment_text(t) AS
  strftime(t, '%Y-%m-%d %H:%M:%S')
  || CASE WHEN epoch_us(t) % 1000000 = 0 THEN '' ELSE rtrim(strftime(t, '.%f'), '0') END;
CREATE MACRO spark_float(x) AS
  CASE WHEN abs(x) < 3.4028235677973366e38 OR isnan(x) THEN CAST(x AS REAL) WHEN x > 0 THEN 'inf' WHEN x < 0 THEN '-inf' END;
CREATE MACRO spark_seconds_since(t) AS
  (epoch_us(t) - (epoch_us(t) % 1000000 + 1000000) % 1000000) // 1000000;
CREATE MACRO spark_time_at(us) AS
  CASE WHEN us BETWEEN {_FIRST} AND {_LAST} THEN make_timestamp(CAST(us AS BIGINT))
  WHEN us IS NOT NULL THEN error('a time lies outside the years 1 to 9999') END;
CREATE MACRO spark_in_years(t) AS
  CASE WHEN year(t) BETWEEN 1 AND 9999 THEN t
  WHEN t IS NOT NULL THEN error('a time lies outside the years 1 to 9999') END;
CREATE MACRO spark_long(x) AS
  CASE WHEN x = 9223372036854775808 THEN 9223372036854775807 ELSE CAST(trunc(x) AS BIGINT) END;
CREATE MACRO spark_try_long(x) AS
  CASE WHEN x = 9223372036854775808 THEN 9223372036854775807 ELSE TRY_CAST(trunc(x) AS BIGINT) END;
CREATE MACRO spark_low_bits(x) AS
  CAST(((x + 9223372036854775808) % 18446744073709551616 + 18446744073709551616)
    % 18446744073709551616 - 9223372036854775808 AS BIGINT);
CREATE MACRO spark_nonzero(a, b) AS
  CASE WHEN b = 0 AND a IS NOT NULL THEN error('division by zero') ELSE b END;
CREATE MACRO spark_divide(a, b) AS a / spark_nonzero(a, b);
CREATE MACRO spark_quotient(a, b) AS a // spark_nonzero(a, b);
CREATE MACRO spark_exact_quotient(a, b) AS
  sign(a) * sign(spark_nonzero(a, b)) * ((abs(a) * 2 + abs(b)) // (abs(b) * 2));
CREATE MACRO spark_remainder(a, b) AS a % CASE WHEN b = -1 THEN -b ELSE spark_nonzero(a, b) END;
CREATE MACRO spark_upper(s) AS
  CASE WHEN strlen(s) = length(s) THEN upper(s) ELSE lakebed_upper(s) END;
CREATE MACRO spark_lower(s) AS
  CASE WHEN strlen(s) = length(s) THEN lower(s) ELSE lakebed_lower(s) END;

CREATE MACRO spark_between(s, b, n) AS
  CASE WHEN b + n <= CASE WHEN b > 0 THEN b ELSE 0 END THEN left(s, 0) WHEN b > 0 THEN substring(s, b + 1, n)
  WHEN b IS NOT NULL THEN substring(s, 1, b + n) END;
CREATE MACRO spark_part(s, p, n) AS
  spark_between(s, CAST(CASE WHEN p > 0 THEN p - 1 WHEN p < 0 THEN length(s) + p WHEN p = 0 THEN 0 END AS BIGINT), n);
CREATE MACRO spark_locate(sub, s, p) AS
  CASE WHEN p IS NULL THEN 0 WHEN sub IS NULL OR s IS NULL THEN NULL WHEN p < 1 THEN 0 WHEN sub = '' THEN 1
  WHEN instr(substring(s, p), sub) = 0 THEN 0 ELSE instr(substring(s, p), sub) + p - 1 END;
CREATE MACRO spark_lpad(s, n, p) AS
  CASE WHEN n <= 0 THEN left(s || p, 0) WHEN p = '' OR length(s) >= n THEN left(s, n) ELSE lpad(s, n, p) END;
CREATE MACRO spark_rpad(s, n, p) AS
  CASE WHEN n <= 0 THEN left(s || p, 0) WHEN p = '' OR length(s) >= n THEN left(s, n) ELSE rpad(s, n, p) END;
CREATE MACRO spark_overlay(s, r, p, n) AS
  spark_part(s, 1, CAST(p AS BIGINT) - 1) || r || spark_part(s, CAST(p AS BIGINT) + n, 2147483647);
CREATE MACRO spark_reverse(s) AS
  CASE WHEN strlen(s) = length(s) THEN reverse(s) ELSE lakebed_reversed(s) END;
CREATE MACRO spark_split_part(s, d, n) AS
  CASE WHEN s IS NULL OR d IS NULL OR n IS NULL THEN NULL WHEN n = 0 THEN error('the number of a part is 0')
  ELSE coalesce(list_extract(CASE WHEN d = '' THEN [s] ELSE string_split(s, d) END, n), '') END;
CREATE MACRO spark_find_in_set(s, l) AS
  CASE WHEN s IS NULL OR l IS NULL THEN NULL WHEN contains(s, ',') THEN 0
  ELSE coalesce(list_position(string_split(l, ','), s), 0) END;
CREATE MACRO spark_levenshtein(a, b) AS
  CASE WHEN strlen(a) = length(a) AND strlen(b) = length(b) THEN levenshtein(a, b) ELSE lakebed_levenshtein(a, b) END;
CREATE MACRO spark_unhex(s) AS
  CASE WHEN regexp_full_match(s, '[0-9a-fA-F]*') THEN unhex(s) END;
CREATE MACRO spark_base64(y) AS
  rtrim(regexp_replace(to_base64(y), '(.{{76}})', '\1' || chr(13) || chr(10), 'g'), chr(13) || chr(10));
CREATE MACRO spark_sign(x) AS
  CASE WHEN isnan(x) OR x = 0 THEN x WHEN x > 0 THEN CAST(1 AS DOUBLE) WHEN x < 0 THEN CAST(-1 AS DOUBLE) END;
CREATE MACRO spark_ln(x) AS CASE WHEN x > 0 THEN ln(x) END;
CREATE MACRO spark_pow(x, y) AS
  CASE WHEN isnan(y) OR (abs(x) = 1 AND isinf(y)) THEN CAST('nan' AS DOUBLE) + x ELSE pow(x, y) END;
CREATE MACRO spark_bit(x, n, bits) AS
  CASE WHEN x IS NOT NULL AND (n < 0 OR n >= bits) THEN error('the number of a bit is outside of the type') ELSE n END;
CREATE MACRO spark_has(a, x) AS
  CASE WHEN a IS NULL OR x IS NULL THEN NULL WHEN list_contains(a, x) THEN true WHEN list_count(a) = len(a) THEN false END;
CREATE MACRO spark_position(a, x) AS
  CASE WHEN a IS NOT NULL AND x IS NOT NULL THEN coalesce(list_position(a, x), 0) END;
CREATE MACRO spark_finds(a, x) AS
  CASE WHEN x IS NULL THEN list_count(a) < len(a) ELSE list_contains(a, x) END;
CREATE MACRO spark_distinct(a) AS
  list_filter(a, lambda v_d, v_n: NOT spark_finds(list_slice(a, 1, v_n - 1), v_d));
CREATE MACRO spark_common(a, b) AS
  CASE WHEN b IS NOT NULL THEN spark_distinct(list_filter(a, lambda v_: spark_finds(b, v_))) END;
CREATE MACRO spark_except(a, b) AS
  CASE WHEN b IS NOT NULL THEN spark_distinct(list_filter(a, lambda v_: NOT spark_finds(b, v_))) END;
CREATE MACRO spark_overlap(a, b) AS
  CASE WHEN a IS NULL OR b IS NULL THEN NULL
  WHEN len(list_filter(a, lambda v_: v_ IS NOT NULL AND list_contains(b, v_))) > 0 THEN true
  WHEN len(a) > 0 AND len(b) > 0 AND (list_count(a) < len(a) OR list_count(b) < len(b)) THEN NULL ELSE false END;
CREATE MACRO spark_nulls(a, n) AS list_transform(range(n), lambda v_: list_extract(a, 0));
CREATE MACRO spark_insert(a, p, x) AS
  CASE WHEN a IS NULL OR p IS NULL THEN NULL WHEN p = 0 THEN error('the place in an array is 0')
  WHEN p > 0 AND p <= len(a) + 1 THEN list_concat(list_slice(a, 1, p - 1), [x], list_slice(a, p, len(a)))
  WHEN p > 0 THEN list_concat(a, spark_nulls(a, p - len(a) - 1), [x])
  WHEN len(a) + p + 1 >= 0 THEN list_concat(list_slice(a, 1, len(a) + p + 1), [x], list_slice(a, len(a) + p + 2, len(a)))
  ELSE list_concat([x], spark_nulls(a, -p - len(a) - 1), a) END;
CREATE MACRO spark_slice(a, p, n) AS
  CASE WHEN a IS NULL OR p IS NULL OR n IS NULL THEN NULL WHEN p = 0 THEN error('a part of an array starts at 0')
  WHEN n < 0 THEN error('a part of an array has a negative length')
  WHEN n = 0 OR p > len(a) OR len(a) + p < 0 THEN list_filter(a, lambda v_: false)
  WHEN p > 0 THEN list_slice(a, p, CAST(p AS BIGINT) + n - 1)
  ELSE list_slice(a, len(a) + p + 1, len(a) + p + n) END;
CREATE MACRO spark_sequence(a, b, s) AS
  CASE WHEN a IS NULL OR b IS NULL OR s IS NULL THEN NULL WHEN a = b THEN [a]
  WHEN s = 0 OR (s > 0) <> (b > a) THEN error('the step of a sequence does not lead to its end')
  ELSE generate_series(a, b, s) END;
CREATE MACRO spark_item(a, n) AS
  CASE WHEN a IS NULL OR n IS NULL THEN NULL WHEN n < 0 OR n >= len(a) THEN error('there is no element of this number')
  ELSE list_extract(a, CAST(n AS BIGINT) + 1) END;
CREATE MACRO spark_try_element(a, n) AS
  CASE WHEN a IS NULL OR n IS NULL THEN NULL WHEN n = 0 THEN error('the number of an element is 0') ELSE list_extract(a, n) END;
CREATE MACRO spark_element(a, n) AS
  CASE WHEN a IS NOT NULL AND n IS NOT NULL AND abs(CAST(n AS BIGINT)) > len(a) THEN error('there is no element of this number')
  ELSE spark_try_element(a, n) END;
CREATE MACRO spark_floor(x, n) AS (x - ((x % n) + n) % n) // n;
CREATE MACRO spark_day_time(t) AS day(t) * 86400000000 + (epoch_us(t) - epoch_us(CAST(CAST(t AS DATE) AS TIMESTAMP)));
CREATE MACRO spark_all_months(t) AS year(t) * 12 + month(t);
CREATE MACRO spark_time_of_day(t) AS epoch_us(t) - epoch_us(CAST(CAST(t AS DATE) AS TIMESTAMP));
CREATE MACRO spark_last_whole_day(a, b) AS
  CASE WHEN CAST(b AS DATE) > CAST(a AS DATE) AND spark_time_of_day(b) < spark_time_of_day(a) THEN CAST(b AS DATE) - 1
  WHEN CAST(b AS DATE) < CAST(a AS DATE) AND spark_time_of_day(b) > spark_time_of_day(a) THEN CAST(b AS DATE) + 1
  ELSE CAST(b AS DATE) END;
CREATE MACRO spark_packed(d) AS spark_all_months(d) * 32 + day(d);
CREATE MACRO spark_months(a, b) AS (spark_packed(spark_last_whole_day(a, b)) - spark_packed(a)) // 32;
CREATE MACRO spark_months_between(a, b) AS
  CAST(spark_all_months(a) - spark_all_months(b) AS DOUBLE) + CASE
  WHEN day(a) = day(b) OR (day(a) = day(last_day(a)) AND day(b) = day(last_day(b))) THEN 0
  ELSE CAST(spark_day_time(a) // 1000000 - spark_day_time(b) // 1000000 AS DOUBLE) / 2678400 END;
CREATE MACRO spark_weekday(s) AS
  CASE WHEN s IS NULL THEN NULL WHEN upper(s) IN ('SU', 'SUN', 'SUNDAY') THEN 7 WHEN upper(s) IN ('MO', 'MON', 'MONDAY') THEN 1
  WHEN upper(s) IN ('TU', 'TUE', 'TUESDAY') THEN 2 WHEN upper(s) IN ('WE', 'WED', 'WEDNESDAY') THEN 3
  WHEN upper(s) IN ('TH', 'THU', 'THURSDAY') THEN 4 WHEN upper(s) IN ('FR', 'FRI', 'FRIDAY') THEN 5
  WHEN upper(s) IN ('SA', 'SAT', 'SATURDAY') THEN 6 ELSE error('there is no such day of the week') END;
CREATE MACRO spark_next_day(d, s) AS
  CASE WHEN d IS NOT NULL THEN d + CAST((spark_weekday(s) - isodow(d) + 6) % 7 + 1 AS INTEGER) END;
CREATE MACRO spark_make_timestamp(y, mo, d, h, mi, s) AS
  CASE WHEN y IS NULL OR mo IS NULL OR d IS NULL OR h IS NULL OR mi IS NULL OR s IS NULL THEN NULL
  WHEN h < 0 OR h > 23 OR mi < 0 OR mi > 59 OR s < 0 OR s > 60 THEN error('the numbers make no time')
  ELSE CAST(make_date(y, mo, d) AS TIMESTAMP)
    + to_microseconds(CAST(h AS BIGINT) * 3600000000 + CAST(mi AS BIGINT) * 60000000 + CAST(CAST(s AS DECIMAL(38, 6)) * 1000000 AS BIGINT)) END;
"""
