"""Limits of what pages and downloads read, so that no request takes the server's memory or time."""

MIB = 1 << 20

FEW_ROWS = 50  # rows of a page unless another number is given
MAX_ROWS = 200  # rows of a page
MAX_COLUMNS = 50  # columns of a page
MAX_PAGE_BYTES = 8 * MIB  # of the values of a page
READ_SECONDS = 10.0  # for finding the rows of a page; twice that if they are sorted

MAX_COMPARED_ROWS = 100_000  # of each version
MAX_COMPARED_BYTES = 64 * MIB  # of each version
MAX_PARTITIONS = 100  # of the table of partitions that differ
MAX_VERSIONS = 100  # of the list to choose from

MAX_READS = 4  # pages with rows that are read at once; others wait
WAIT_SECONDS = 20.0  # for another page to be read, before the answer is 503
MAX_DOWNLOADS = 4  # that are sent at once; the answer to others is 503
STALLED_SECONDS = 60.0  # until a download ends that its client does not take
MAX_CATALOG_PLANS = 8  # of the Iceberg catalog that are made at once; others wait
MAX_CATALOG_COMMITS = 8  # of the Iceberg catalog that are made or wait at once; others are refused
