"""Print the main table.

python -m benchmarks.tables
"""

from benchmarks.tables.quality import main_table

if __name__ == "__main__":
    print(main_table())
