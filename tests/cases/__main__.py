"""`python -m tests.cases`: writes each story's folder, `tests/cases/<cause>/<slug>/`, anew."""

from tests.cases import build

if __name__ == "__main__":
    build.write_all()
