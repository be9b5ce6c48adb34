"""Functions of Spark SQL that are not computed without Spark, with the reason."""

from __future__ import annotations

from typing import Final

_REASONS: Final = {
    "each row has another value, or that of one moment": (
        "rand random randn randstr uniform uuid shuffle monotonically_increasing_id "
        "spark_partition_id input_file_name input_file_block_length input_file_block_start"
    ),
    "it is a property of a session of Spark": (
        "current_catalog current_database current_schema current_path current_user session_user "
        "user version current_timezone curdate current_time localtime"
    ),
    "it is computed of many rows": (
        "any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate "
        "approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg "
        "bitmap_construct_agg bitmap_or_agg bool_and bool_or collect_list collect_set collect_union "
        "corr count count_if count_min_sketch covar_pop covar_samp every first first_value grouping "
        "grouping_id histogram_numeric kurtosis last last_value listagg max max_by mean measure "
        "median min min_by mode percentile percentile_approx percentile_cont percentile_disc "
        "regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy "
        "skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum var_pop "
        "var_samp variance schema_of_variant_agg vector_avg vector_sum counter_diff cume_dist "
        "dense_rank lag lead nth_value ntile percent_rank rank row_number window window_time "
        "session_window"
    ),
    "it makes rows": (
        "explode explode_outer inline inline_outer posexplode posexplode_outer stack json_tuple "
        "collations sql_keywords variant_explode variant_explode_outer range python_worker_logs"
    ),
    "it is a sketch of Spark": (
        "approx_top_k_estimate hll_sketch_agg hll_union_agg hll_sketch_estimate hll_union "
        "kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint "
        "kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double "
        "kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double "
        "kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double "
        "kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double "
        "kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double "
        "kll_sketch_to_string_float theta_difference theta_intersection theta_intersection_agg "
        "theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg tuple_difference_double "
        "tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer "
        "tuple_intersection_agg_double tuple_intersection_agg_integer tuple_intersection_double "
        "tuple_intersection_integer tuple_intersection_theta_double "
        "tuple_intersection_theta_integer tuple_sketch_agg_double tuple_sketch_agg_integer "
        "tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double "
        "tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer "
        "tuple_union_agg_double tuple_union_agg_integer tuple_union_double tuple_union_integer "
        "tuple_union_theta_double tuple_union_theta_integer bitmap_bit_position "
        "bitmap_bucket_number bitmap_count"
    ),
    "it reads or writes a format by Spark's own rules": (
        "from_avro schema_of_avro to_avro from_csv schema_of_csv to_csv from_json "
        "json_object_keys schema_of_json to_json from_protobuf to_protobuf from_xml "
        "schema_of_xml to_xml xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long "
        "xpath_number xpath_short xpath_string parse_url try_parse_url get_json_object json_array_length"
    ),
    "it has values of a type that datasets do not have": (
        "is_valid_variant is_variant_null parse_json schema_of_variant to_variant_object "
        "try_parse_json try_variant_array_append try_variant_get try_variant_insert try_variant_set "
        "variant_array_append variant_delete variant_get variant_insert variant_set "
        "variant_strip_nulls st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid time "
        "make_time time_bucket time_diff time_from_micros time_from_millis time_from_seconds "
        "time_to_micros time_to_millis time_to_seconds time_trunc to_time try_to_time "
        "make_dt_interval make_interval make_ym_interval try_make_interval timestamp_nanos unix_nanos"
    ),
    "the rules of time zones differ": "convert_timezone from_utc_timestamp to_utc_timestamp",
    "its form is that of Java": (
        "format_number format_string printf to_char to_varchar to_number try_to_number sentences "
        "typeof quote mask jaro_winkler_similarity to_base32 from_base32 collate collation"
    ),
    "it runs code of Java": "java_method reflect try_reflect",
    "it has no exact peer": (
        "aes_decrypt aes_encrypt try_aes_decrypt hmac try_make_timestamp try_make_timestamp_ltz "
        "try_make_timestamp_ntz try_url_decode vector_cosine_similarity vector_inner_product "
        "vector_l2_distance vector_norm vector_normalize assert_true raise_error"
    ),
    "it is written as CAST": "decimal",
}

# By the names of functions, in lower case.
REFUSED: Final[dict[str, str]] = {
    name: reason for reason, names in _REASONS.items() for name in names.split()
}
