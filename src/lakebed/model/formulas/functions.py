"""The functions of Spark SQL that are computed without Spark, each with the meaning that it has there."""

from lakebed.model.formulas import (
    functions_collections,
    functions_hashes,
    functions_numbers,
    functions_patterns,
    functions_text,
    functions_time,
    functions_values,
)
from lakebed.model.formulas.functions_base import FUNCTIONS, NOTES, SUBJECTS, FunctionCall
from lakebed.model.formulas.functions_refused import REFUSED

__all__ = ["FUNCTIONS", "NOTES", "REFUSED", "SUBJECTS", "FunctionCall"]

# Each module declares its functions when it is imported.
_MODULES = (
    functions_values,
    functions_text,
    functions_patterns,
    functions_numbers,
    functions_time,
    functions_collections,
    functions_hashes,
)
