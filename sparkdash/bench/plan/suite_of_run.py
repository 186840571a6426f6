"""Suite of a run that goes on: the same cells, the same text.

Owns: what must not have changed since the run began. Must not know: how anything is measured.
"""

from __future__ import annotations

from sparkdash.bench.plan import suites
from sparkdash.bench.run import Run
from sparkdash.errors import AdmissionError


def suite_of_run(run: Run) -> suites.Suite:
    """Load the suite and the corpus that the run measures.

    Raises:
        AdmissionError: `suite_changed`, `corpus_changed`, and as `suites.load_suite` and `load_corpus`.
    """
    suite = suites.load_suite(run.suite_file or run.suite)
    if run.corpus is not None:
        suite = suite.with_corpus(run.corpus.name)
    if suite.corpus_text is not None and suite.corpus_text.told != run.corpus:
        raise _changed(f"The corpus {suite.corpus}", run, "corpus_changed")
    if suite.hash != run.suite_hash:
        raise _changed(f"The suite {run.suite}", run, "suite_changed")
    return suite


def _changed(what: str, run: Run, code: str) -> AdmissionError:
    return AdmissionError(f"{what} has changed since {run.id} began.", code=code, status=409, hint="Start a new run.")
