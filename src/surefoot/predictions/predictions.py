"""`Predictions`: logits and labels of n examples, validated once; confidence is derived in log space.

Shapes: n examples, k classes; ``logits (n, k)``, ``labels (n,)``. The scores keep their dtype (float16 to float64) and
their memory, a memory map too; they are never copied as one array. Every derived number is float64: a block of rows is
cast to float64 first, then computed with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from surefoot.deprecated import renamed_property
from surefoot.errors import BadInput
from surefoot.predictions.columns import (
    columns_from_logits,
    columns_from_probs,
    empty_columns,
    single_column,
    soften,
)
from surefoot.predictions.estimators import is_estimator, probs_of
from surefoot.predictions.events import Events
from surefoot.predictions.inputs import Rows, read_rows
from surefoot.predictions.kinds import check_logits, check_probs
from surefoot.threads import run_ranges, split_range
from surefoot.validation import as_array, as_column, as_path, check_int, precision

__all__ = ["Predictions"]

Floats = NDArray[np.float64]
Part = TypeVar("Part")

# Numbers in a block of rows: few enough to stay in a core's cache during several operations, many enough that threads
# seldom wait for the interpreter's lock.
_BLOCK_NUMBERS = 1 << 19
# The number of contiguous parts of the rows is fixed, not the number of cores: sums that are merged in the order of the
# parts then do not depend on the machine.
_PARTS = 8

Form = Literal["classes", "positive", "multilabel", "confidence"]
# The events that metrics read unless told otherwise.
_DEFAULT_EVENT = {"classes": "top", "positive": "positive", "multilabel": "pooled", "confidence": "given"}


class Predictions:
    """What a classifier predicts for n examples, and what was true.

    The usual kind are logits (n, k) and one label a row. Other kinds have constructors of their own: `from_probs`,
    `from_confidence`, `multilabel`. Metrics read `events`.

    The predicted class is the class with the largest logit; among equal logits, the class with the lowest index.

    Args:
        logits: (n, k) real numbers, n >= 1 and k >= 2: a tensor, an array or nested lists. A row may contain −inf, but
            also needs a finite value; NaN and +inf are refused. The numbers are kept, not copied: do not modify them.
            (n,) numbers are logits of the positive of two classes. (n, …, k) logits have many positions in each
            example, such as tokens or pixels; each kept position becomes a row, and an example is a cluster.
        labels: (n,) or (n, …) integers in 0..k−1, or names among ``names``; or soft labels, floats in the shape of the
            logits that sum to 1.
        weights: (n,) non-negative weights. Integers count how often a row was seen; other numbers say how much a row
            counts. Rows of weight 0 are left out. None counts each row once.
        clusters: (n,) values that mark rows that belong together, such as a patient's; intervals and tests then
            resample clusters. None makes rows independent.
        groups: columns by name, (n,) values each, such as ``{"country": countries}``.
        names: names of the k classes, in the order of the columns.
        ignore_index: label of rows or positions that are left out, such as −100.
        positive: label of the positive event, for two classes; None takes the second class.

    Attributes:
        labels: (n,) labels as a read-only int64 array; for soft labels, the most probable class.
        soft_labels: (n, k) float64 soft labels, or None.
        weights: (n,) float64 weights, or None.
        clusters: (n,) int64 clusters, or None.
        groups: columns by name.
        names: names of the classes, or None.
        positive: class of the positive event; None for more than two classes.
        form: ``"classes"``; ``"positive"`` for one score a row; ``"multilabel"``; ``"confidence"``.
        missing: number of labels that `multilabel` was not given.

    Raises:
        BadInput: when an argument is not as described, or when the logits look like probabilities or percentages.

    Example:
        >>> p = Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])
        >>> p.confidence.round(4).tolist(), p.correct.tolist(), p.true_margin.tolist()
        ([0.8808, 0.7311], [True, False], [2.0, -1.0])
        >>> tokens = Predictions(np.zeros((2, 3, 4)), [[0, 1, -100], [2, -100, -100]], ignore_index=-100)
        >>> len(tokens), tokens.clusters.tolist()
        (3, [0, 0, 1])
    """

    def __init__(
        self,
        logits: Any,
        labels: Any,
        weights: Any = None,
        clusters: Any = None,
        groups: Mapping[str, Any] | None = None,
        names: Sequence[Any] | None = None,
        ignore_index: int | None = None,
        *,
        positive: Any = None,
    ) -> None:
        rows = read_rows(
            "logits",
            logits,
            labels,
            weights=weights,
            clusters=clusters,
            groups=groups,
            names=names,
            ignore_index=ignore_index,
            positive=positive,
        )
        self._set(rows, "logits")
        check_logits(rows.scores, self._score_blocks)

    @classmethod
    def from_probs(
        cls,
        probs: Any,
        labels: Any,
        weights: Any = None,
        clusters: Any = None,
        groups: Mapping[str, Any] | None = None,
        names: Sequence[Any] | None = None,
        ignore_index: int | None = None,
        *,
        positive: Any = None,
    ) -> Predictions:
        """Make predictions from probabilities.

        A row whose sum is 1 up to float64 rounding is kept bit-exactly; any other row is divided by its sum.

        Args:
            probs: (n, k) probabilities, k >= 2, none below 0. Each row must sum to 1 within 1e-3, or within the
                rounding of its own decimals, but no row may be off by more than 1e-2. (n,) numbers are probabilities
                of the positive of two classes. (n, …, k) as for `Predictions`.
            labels: as for `Predictions`; for (n,) probabilities 0 and 1, booleans, or two names.
            weights: as for `Predictions`.
            clusters: as for `Predictions`.
            groups: as for `Predictions`.
            names: as for `Predictions`.
            ignore_index: as for `Predictions`.
            positive: label of the positive event, for two classes; needed if labels are names.

        Returns:
            The predictions; their `logits` are the logarithms of the probabilities.

        Raises:
            BadInput: when an entry is below 0, a row does not sum to 1 within rounding, or the labels do not fit.

        Example:
            >>> Predictions.from_probs([[0.9, 0.1]], [0]).confidence.tolist()
            [0.9]
            >>> spam = Predictions.from_probs([0.7, 0.2], ["spam", "ham"], positive="spam")
            >>> spam.events().prob.tolist(), spam.events().happened.tolist()
            ([0.7, 0.2], [True, False])
        """
        rows = read_rows(
            "probs",
            probs,
            labels,
            weights=weights,
            clusters=clusters,
            groups=groups,
            names=names,
            ignore_index=ignore_index,
            positive=positive,
        )
        self = cls.__new__(cls)
        self._set(rows, "probs")
        check_probs("probs", self._score_blocks, precision(probs))
        return self

    @classmethod
    def from_confidence(
        cls,
        confidence: Any,
        correct: Any,
        weights: Any = None,
        clusters: Any = None,
        groups: Mapping[str, Any] | None = None,
    ) -> Predictions:
        """Make predictions of which only the confidence is known, and whether each was right.

        Language models, optical character recognition and judges give such tables. Metrics that need the probabilities
        of all classes refuse them.

        Args:
            confidence: (n,) stated probabilities that the prediction is right, in [0, 1].
            correct: (n,) whether the prediction was right: booleans, 0 and 1.
            weights: as for `Predictions`.
            clusters: as for `Predictions`.
            groups: as for `Predictions`.

        Returns:
            The predictions.

        Raises:
            BadInput: when a column is not as described.

        Example:
            >>> p = Predictions.from_confidence([0.9, 0.4], [True, False])
            >>> p.confidence.tolist(), p.correct.tolist()
            ([0.9, 0.4], [True, False])
        """
        rows = read_rows("confidence", confidence, correct, weights=weights, clusters=clusters, groups=groups)
        if rows.scores.shape[1] != 1:
            raise BadInput(f"confidence must have shape (n,), one per row; got shape {np.shape(confidence)}")
        self = cls.__new__(cls)
        self._set(rows, "probs", "confidence")
        check_probs("confidence", self._score_blocks)
        return self

    @classmethod
    def multilabel(
        cls,
        probs: Any,
        labels: Any,
        weights: Any = None,
        clusters: Any = None,
        groups: Mapping[str, Any] | None = None,
        names: Sequence[Any] | None = None,
    ) -> Predictions:
        """Make predictions with several labels a row, each of which is present or absent by itself.

        Every entry becomes a row of its own with the two classes absent and present. The entries of one example are
        one cluster. The columns ``label`` and ``row`` of `groups` say which label and which example an entry is of.

        Args:
            probs: (n, L) probabilities that each label is present, L >= 1; they need not sum to 1.
            labels: (n, L) 1 where the label is present and 0 where not; missing entries are NaN or −1.
            weights: (n,) weights of the examples, or (n, L).
            clusters: (n,) clusters of the examples; None makes each example a cluster.
            groups: columns by name, one value for each example.
            names: names of the L labels.

        Returns:
            The predictions; ``missing`` counts the entries without a label, which are left out.

        Raises:
            BadInput: when an argument is not as described, or all labels are missing.

        Example:
            >>> p = Predictions.multilabel([[0.9, 0.2], [0.4, 0.6]], [[1, 0], [-1, 1]], names=["cat", "dog"])
            >>> len(p), p.missing, p.groups["label"].tolist()
            (3, 1, ['cat', 'dog', 'dog'])
        """
        scores, given = as_array("probs", probs), as_array("labels", labels)
        if scores.ndim != 2 or scores.size == 0 or given.shape != scores.shape:
            raise BadInput(
                f"probs and labels must have the same shape (n, L), a column per label; got {scores.shape} and "
                f"{given.shape}"
            )
        if given.dtype.kind not in "biuf":
            raise BadInput(f"labels must be 1, 0, or NaN or -1 where missing; got dtype {given.dtype}")
        values = given.astype(np.float64)
        absent = np.isnan(values) | (values == -1)
        wrong = ~(absent | (values == 0) | (values == 1))
        if wrong.any():
            row, column = (int(index) for index in np.argwhere(wrong)[0])
            raise BadInput(
                f"labels must be 1, 0, or NaN or -1 where missing; row {row}, label {column} has {values[row, column]}"
            )
        if names is not None and len(names) != scores.shape[1]:
            raise BadInput(f"names must be the names of the {scores.shape[1]} labels; got {len(names)}: {names!r}")
        title = np.array([str(name) for name in (range(scores.shape[1]) if names is None else names)])
        columns = {key: np.broadcast_to(as_column(key, column, len(scores))[:, None], scores.shape)
                   for key, column in (groups or {}).items()}  # fmt: skip
        rows = read_rows(
            "probs",
            scores[:, :, None],
            np.where(absent, -1, values).astype(np.int64),
            weights=weights,
            clusters=clusters,
            groups={**columns, "label": np.broadcast_to(title, scores.shape), "row": np.arange(len(scores))},
            ignore_index=-1,
        )
        self = cls.__new__(cls)
        self._set(rows, "probs", "multilabel")
        self.missing = int(absent.sum())
        check_probs("probs", self._score_blocks, precision(probs))
        return self

    @classmethod
    def of(cls, model: Any, inputs: Any, labels: Any = None, batch_size: int = 1024) -> Predictions:
        """Compute the predictions of a torch module or of a scikit-learn classifier.

        A module runs in eval mode; its mode, gradients and the random state are left as they were.

        Args:
            model: a torch module that returns logits (b, k), or any fitted object with ``predict_proba``.
            inputs: (n, ...) inputs; a classifier with ``predict_proba`` receives all inputs at once. Without ``labels``
                given, a data set: whatever `surefoot.data.as_dataset` takes, such as a pair (inputs, labels) or a
                ``DataLoader``, which a module reads batch by batch.
            labels: (n,) integers in 0..k−1 for a module. For a classifier, its own labels: numbers or names among
                ``classes_``, whose order is the order of the columns.
            batch_size: rows in one forward pass of a module, at least 1.

        Returns:
            The predictions: from logits for a module, from probabilities for a classifier.

        Raises:
            BadInput: when the model has neither form, or inputs, outputs and labels do not fit together.

        Example:
            >>> import torch
            >>> Predictions.of(torch.nn.Identity(), torch.tensor([[2.0, 0.0]]), [0]).true_margin.tolist()
            [2.0]
        """
        if is_estimator(model):
            if labels is None:
                raise BadInput(f"{type(model).__name__} needs labels: write Predictions.of(model, inputs, labels)")
            return cls.from_probs(*probs_of(model, inputs, labels))
        from surefoot.forward import logits_of

        if labels is None:
            from surefoot.dataset import as_dataset

            data = as_dataset("inputs", inputs)
            return cls(logits_of(model, data, batch_size), data.labels)

        # The check comes before the forward pass, which may take long.
        if hasattr(inputs, "__len__") and hasattr(labels, "__len__") and len(inputs) != len(labels):
            raise BadInput(f"labels must be one per input; got {len(labels)} for {len(inputs)} inputs")
        return cls(logits_of(model, inputs, batch_size), labels)

    @classmethod
    def load(
        cls,
        source: Any,
        *,
        label: str | None = None,
        prob: str | None = None,
        logit: str | None = None,
        confidence: str | None = None,
        correct: str | None = None,
        weight: str | None = None,
        cluster: str | None = None,
        time: str | None = None,
        id: str | None = None,
        by: Sequence[str] = (),
        positive: Any = None,
        names: Sequence[Any] | None = None,
        ignore_index: int | None = None,
        split: str | None = None,
        kind: str | None = None,
    ) -> Predictions:
        """Read predictions from a file, from parts, from standard input or from a data frame.

        The header of a table tells what its columns are: ``label``, then ``prob_<class>`` or ``logit_<class>`` for each
        class; a single ``prob`` for P(positive); ``confidence`` and ``correct``; ``label_<name>`` and ``prob_<name>``
        for several labels a row; ``sample_weight`` and ``cluster``. The arguments name columns of other names. Columns
        of unknown meaning beside the scores are kept in `groups`; columns that may be scores are asked about.

        Args:
            source: a ``.npz``, ``.csv``, ``.parquet``, ``.jsonl``, ``.feather`` or ``.arrow`` file, the text formats
                also compressed (``.gz``, ``.zst``); a folder of parts; a pattern such as ``"parts/*.parquet"``; ``"-"``
                for standard input; a pandas or polars frame, an arrow table, a ``datasets.Dataset``, or a mapping of
                columns.
            label: column of the labels, which may be names of classes.
            prob: column of P(positive), or prefix of the columns of all classes, or a column of lists.
            logit: the same for logits.
            confidence: column of the confidence in the prediction.
            correct: column that says whether the prediction was right.
            weight: column of weights.
            cluster: column of clusters.
            time: column of times; `groups` has it under ``time``.
            id: column of identifiers; `groups` has it under ``id``.
            by: columns of groups, which must be there.
            positive: label of the positive event, for two classes.
            names: names of the classes in the order of the columns, where the file does not tell.
            ignore_index: label of rows that are left out.
            split: which set of an ``.npz`` file with several sets: ``"val"`` reads ``val_logits`` and ``val_labels``.
            kind: ``"logits"`` or ``"probs"``, where the names of the columns do not tell: all columns that are nothing
                else are then scores.

        Returns:
            The predictions.

        Raises:
            BadInput: when there is no such file, it is damaged, a column is missing or its meaning is not clear, or a
                number is not as described.
        """
        from surefoot.predictions.tables import Columns, read_source

        if kind not in (None, "logits", "probs"):
            raise BadInput(f"kind must be 'logits' or 'probs'; got {kind!r}")
        wanted = Columns(label, prob, logit, confidence, correct, weight, cluster, time, id, tuple(by), kind)
        table, in_file = read_source(source, wanted, split)
        with in_file():
            return cls._of_table(table, positive, names, ignore_index)

    @classmethod
    def batches(
        cls,
        source: Any,
        *,
        rows: int = 1 << 18,
        positive: Any = None,
        names: Sequence[Any] | None = None,
        ignore_index: int | None = None,
        **columns: Any,
    ) -> Iterator[Predictions]:
        """Read predictions batch by batch: the memory does not grow with the file.

        Args:
            source: a ``.parquet``, ``.csv``, ``.feather`` or ``.arrow`` file, also compressed text; a folder or a
                pattern of parts; a data frame. Other files are one batch.
            rows: rows of a batch, at least 1; a batch of text may have other numbers of rows.
            positive: as for `load`.
            names: as for `load`.
            ignore_index: as for `load`; a batch without other rows is left out.
            **columns: names of columns and ``kind``, as for `load`.

        Yields:
            The predictions of the batches.

        Raises:
            BadInput: as for `load`; the error names the batch's part of the file.
        """
        from surefoot.predictions.tables import Columns, read_batches

        check_int("rows", rows, 1)
        wanted = Columns(**columns)
        for table in read_batches(source, wanted, rows):
            if ignore_index is not None and (np.asarray(table.labels) == ignore_index).all():
                continue
            yield cls._of_table(table, positive, names, ignore_index)

    @classmethod
    def _of_table(cls, table: Any, positive: Any, names: Sequence[Any] | None, ignore_index: int | None) -> Predictions:
        columns: dict[str, Any] = {"weights": table.weights, "clusters": table.clusters, "groups": table.groups}
        classes = names if names is not None else table.names
        if table.kind == "confidence":
            return cls.from_confidence(table.scores, table.labels, **columns)
        if table.kind == "multilabel":
            return cls.multilabel(table.scores, table.labels, **columns, names=classes)
        make = cls.from_probs if table.kind == "probs" else cls
        event = table.positive if positive is None else positive
        return make(table.scores, table.labels, **columns, names=classes, ignore_index=ignore_index, positive=event)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an ``.npz``, ``.csv``, ``.parquet`` or ``.feather`` file; a failed write leaves no partial file.

        Names of classes, weights, clusters and the kept columns are written too.

        Args:
            path: the file; its suffix chooses the format.

        Raises:
            BadInput: when the suffix is another one.
            StorageFault: when the file system refuses the write.
        """
        from surefoot.predictions.tables import Table, write_table

        labels: NDArray[Any] = self.labels if self.soft_labels is None else self.soft_labels
        names = None if self.names is None else list(self.names)
        if self.form == "multilabel":
            write_table(as_path(path), self._wide_table())
            return
        if self._single:
            kind = "confidence" if self.form == "confidence" else self._kind
            scores = self.events().prob if kind != "logits" else self._given(slice(None))[:, 0]
            write_table(as_path(path), Table(kind, scores, labels, names, self.weights, self.clusters, self.groups))
            return
        # Probabilities are written as normalised: a file whose rows were divided by their sums can be read back.
        scores = self._block(slice(None)) if self._kind == "logits" else self.probs
        positive = None if self.positive in (None, 1) else self.positive
        table = Table(self._kind, scores, labels, names, self.weights, self.clusters, self.groups, positive)
        write_table(as_path(path), table)

    def _wide_table(self) -> Any:
        """One row for each example, with a column for each of its labels; NaN where a label is missing."""
        from surefoot.predictions.tables import Table

        rows, first, row = np.unique(self.groups["row"], return_index=True, return_inverse=True)
        titles, column = np.unique(self.groups["label"], return_inverse=True)
        order = np.argsort(np.unique(column, return_index=True)[1])  # as they were given
        place = np.argsort(order)[column]
        scores, labels = np.full((2, len(rows), len(titles)), np.nan)
        scores[row, place], labels[row, place] = self.events().prob, self.labels
        kept = {name: values[first] for name, values in self.groups.items() if name not in ("row", "label")}
        weights = None if self.weights is None else self.weights[first]
        clusters = None if self.clusters is None else self.clusters[first]
        return Table("multilabel", scores, labels, titles[order].tolist(), weights, clusters, kept)

    def take(self, rows: Any) -> Predictions:
        """Select rows; the selection shares the scores and derived columns of its source.

        Args:
            rows: indices, a slice or a boolean mask (n,); indices may repeat and choose the order.

        Returns:
            The predictions of the chosen rows, at least one.

        Raises:
            BadInput: when ``rows`` is out of range, of another form or empty.

        Example:
            >>> Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0]).take([1, 1]).correct.tolist()
            [False, False]
        """
        try:
            index = np.arange(len(self))[rows]
        except (IndexError, TypeError, ValueError) as error:
            raise BadInput(
                f"rows must be indices in 0..{len(self) - 1}, a slice or a mask of {len(self)}; {error}"
            ) from error
        if index.ndim != 1 or len(index) == 0:
            raise BadInput(f"rows must pick one or more rows; got {rows!r}")
        child = Predictions.__new__(Predictions)
        rows = Rows(
            self._scores,
            self.labels[index],
            index if self._rows is None else self._rows[index],
            None if self.soft_labels is None else self.soft_labels[index],
            None if self.weights is None else self.weights[index],
            None if self.clusters is None else self.clusters[index],
            {name: column[index] for name, column in self.groups.items()},
            self.names,
            self.positive,
        )
        child._set(rows, self._kind, self.form)
        child._source, child._source_rows = self, index
        return child

    def with_scores(self, scores: NDArray[Any], kind: str) -> Predictions:
        """Replace the scores and keep everything else: labels, weights, clusters, groups, names and the form.

        Args:
            scores: (n, k) logits or probabilities, or (n, 2) where a row has one score.
            kind: ``"logits"`` or ``"probs"``.

        Returns:
            New predictions of the same rows.

        Raises:
            BadInput: when the scores are not finite logits, or not probabilities.

        Example:
            >>> p = Predictions([[2.0, 0.0]], [0], names=["cat", "dog"])
            >>> p.with_scores(np.array([[0.5, 0.5]]), "probs").names
            ('cat', 'dog')
        """
        if self._single and scores.shape[1] == 2:
            scores = scores[:, 1:] if kind == "probs" else scores[:, 1:] - scores[:, :1]
        if scores.shape != (len(self), self._scores.shape[1]):
            raise BadInput(f"scores must have shape {(len(self), self.classes)}; got {scores.shape}")
        child = Predictions.__new__(Predictions)
        rows = Rows(
            scores, self.labels, None, self.soft_labels, self.weights, self.clusters, self.groups, self.names,
            self.positive,
        )  # fmt: skip
        child._set(rows, kind, self.form)
        child.missing = self.missing
        if kind == "probs":
            check_probs("probs", child._score_blocks)
        else:
            check_logits(scores, child._score_blocks)
        return child

    def as_classes(self) -> Predictions:
        """The same rows as predictions of classes: a confidence becomes the two classes wrong and right.

        Returns:
            The predictions themselves, unless only a confidence is known.

        Example:
            >>> Predictions.from_confidence([0.25], [True]).as_classes().predicted.tolist()
            [0]
        """
        if self.form != "confidence":
            return self
        rows = Rows(
            self._scores, self.labels, self._rows, None, self.weights, self.clusters, self.groups, self.names, 1
        )  # fmt: skip
        child = Predictions.__new__(Predictions)
        child._set(rows, self._kind, "positive")
        return child

    def events(self, which: str | int | None = None) -> Events:
        """Make the table of events that calibration metrics read.

        Args:
            which: ``"top"``: the predicted class is the label. ``"positive"``: the row is of the positive of two
                classes. A class, by number or name: the row is of that class; for several labels a row, that label is
                present. ``"pooled"``: all classes, or all labels, in one table. None takes the usual events: top for
                logits and probabilities of classes, positive for one score a row, pooled for several labels a row.

        Returns:
            The events, with the weights and clusters of the rows.

        Raises:
            BadInput: when these predictions have no such events.

        Example:
            >>> p = Predictions.from_probs([[0.7, 0.3], [0.2, 0.8]], [0, 0])
            >>> p.events("top").happened.tolist(), p.events("positive").prob.tolist()
            ([True, False], [0.3, 0.8])
        """
        usual = _DEFAULT_EVENT[self.form]
        if which is None or (which == "given" and self.form == "confidence"):
            which = usual
        key = f"events {which!r}"
        return self.memo(key, lambda: self._make_events(which))

    def _make_events(self, which: str | int) -> Events:
        if self.form == "confidence":
            if which not in ("given", "top"):
                raise BadInput(
                    f"from_confidence knows no classes, so there are no events {which!r}; leave out which, or give the "
                    "probabilities of all classes with Predictions.from_probs"
                )
            return Events.trusted(self.confidence, self.correct, self.weights, self.clusters, name="given")
        if which == "top":
            return Events.trusted(
                self.confidence, self.correct, self.weights, self.clusters, self.error_probability, "top"
            )
        if self.form == "multilabel":
            return self._label_events(which)
        if which == "pooled":
            repeated = None if self.weights is None else np.repeat(self.weights, self.classes)
            owner = np.arange(len(self)) if self.clusters is None else self.clusters
            happened = self.soft_labels
            if happened is None:
                happened = self.labels[:, None] == np.arange(self.classes)
            return Events.trusted(
                self.probs.ravel(), happened.ravel(), repeated, np.repeat(owner, self.classes), None, "pooled"
            )
        return self._class_events(self._class_of(which), str(which))

    def _class_of(self, which: str | int) -> int:
        if which == "positive":
            if self.positive is None:
                raise BadInput(
                    f"events 'positive' need two classes; these predictions have {self.classes}. Name a class: "
                    f"0..{self.classes - 1}" + ("" if self.names is None else f", or {', '.join(self.names[:8])}")
                )
            return self.positive
        if self.names is not None and which in self.names:
            return self.names.index(str(which))
        if isinstance(which, int | np.integer) and not isinstance(which, bool) and 0 <= which < self.classes:
            return int(which)
        known = f"0..{self.classes - 1}" if self.names is None else ", ".join(map(repr, self.names[:8]))
        raise BadInput(f"events must be 'top', 'positive', 'pooled' or a class ({known}); got {which!r}")

    def _class_events(self, index: int, name: str) -> Events:
        if self._single:
            return self._single_events(index, name)
        prob, complement = np.empty(len(self)), np.empty(len(self))

        def visit(_: None, rows: slice, probs: Floats) -> None:
            prob[rows] = probs[:, index]
            probs[:, index] = 0.0
            complement[rows] = probs.sum(axis=1)

        self.sweep(lambda: None, visit)
        happened = self.labels == index if self.soft_labels is None else self.soft_labels[:, index]
        return Events.trusted(prob, happened, self.weights, self.clusters, np.minimum(complement, 1.0), name)

    def _single_events(self, index: int, name: str) -> Events:
        """Events of one score a row, without the columns of both classes, which cost ten times more."""
        score = np.ascontiguousarray(self._given(slice(None))[:, 0], dtype=np.float64)
        happened: NDArray[Any] = self.labels == 1
        if self._kind == "probs":
            pair: tuple[Floats, Floats | None] = (score, None)
        else:
            with np.errstate(over="ignore", under="ignore"):
                pair = 1.0 / (1.0 + np.exp(-score)), 1.0 / (1.0 + np.exp(score))
        if index == 0:
            other = 1.0 - pair[0] if pair[1] is None else pair[1]
            return Events.trusted(other, ~happened, self.weights, self.clusters, pair[0], name)
        return Events.trusted(pair[0], happened, self.weights, self.clusters, pair[1], name)

    def _label_events(self, which: str | int) -> Events:
        everything = self._class_events(1, "pooled")
        if which in ("pooled", "positive"):
            return everything
        titles = self.groups["label"]
        present = np.unique(titles).tolist()
        chosen = titles == str(which)
        if not chosen.any():
            raise BadInput(f"label must be one of {', '.join(map(repr, present[:8]))}; got {which!r}")
        label = everything.take(chosen)
        label.name = str(which)
        return label

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        kind = "" if self.form == "classes" else f", form={self.form!r}"
        known = "".join(f", {name}" for name in ("weights", "clusters") if getattr(self, name) is not None)
        return f"Predictions(n={len(self)}, classes={self.classes}{kind}{known})"

    @property
    def classes(self) -> int:
        """Number of classes k; 2 where a row has one score."""
        return max(2, int(self._scores.shape[1]))

    @property
    def scores(self) -> str:
        """What was given: ``"logits"`` or ``"probs"``."""
        return self._kind

    def require_classes(self, what: str) -> None:
        """Check that the probabilities of all classes are known.

        Args:
            what: what needs them, for the error.

        Raises:
            BadInput: when only a confidence is known.
        """
        if self.form == "confidence":
            raise BadInput(
                f"{what} needs the probabilities of all classes, and from_confidence knows only the confidence; use "
                "Predictions.from_probs(probs, labels)"
            )

    # --- full matrices, computed on request ---------------------------------------------------------

    @property
    def logits(self) -> NDArray[Any]:
        """(n, k) logits as given; log-probabilities where probabilities were given."""
        return self.log_probs if self._kind == "probs" else self._block(slice(None))

    @property
    def log_probs(self) -> Floats:
        """(n, k) log-softmax in float64; accurate also where a probability rounds to 1."""
        return np.concatenate([self._derive(rows, "log_probs")[1] for rows in self._slices()])

    @property
    def probs(self) -> Floats:
        """(n, k) softmax in float64."""
        return np.concatenate([self._derive(rows, "probs")[1] for rows in self._slices()])

    # --- columns, derived once ----------------------------------------------------------------------

    @property
    def predicted(self) -> NDArray[np.int64]:
        """(n,) predicted class."""
        return self._column("predicted")

    @property
    def correct(self) -> NDArray[np.bool_]:
        """(n,) whether the predicted class is the label; for soft labels, the label's share of the predicted class."""
        return self._column("correct")

    @property
    def confidence(self) -> Floats:
        """(n,) probability of the predicted class."""
        return self._column("confidence")

    @property
    def log_confidence(self) -> Floats:
        """(n,) logarithm of the confidence; it does not saturate where the confidence rounds to 1."""
        return self._column("log_confidence")

    @property
    def error_probability(self) -> Floats:
        """(n,) 1 − confidence; tiny but distinct where the confidence rounds to 1."""
        return self._column("error_probability")

    doubt = renamed_property("doubt", "error_probability")

    @property
    def log_true(self) -> Floats:
        """(n,) log-probability of the label, −inf where its logit is −inf; for soft labels, the mean over the label."""
        return self._column("log_true")

    @property
    def true_margin(self) -> Floats:
        """(n,) logit of the label minus the largest other logit (Morosini et al. 2026, Section 4)."""
        return self._column("true_margin")

    @property
    def predicted_margin(self) -> Floats:
        """(n,) largest logit minus the second largest; never negative."""
        return self._column("predicted_margin")

    @property
    def squared_error(self) -> Floats:
        """(n,) Σ_k (p_k − 1{k = label})², in [0, 2]: the Brier score of one example."""
        return self._column("squared_error")

    def sweep(
        self,
        start: Callable[[], Part],
        visit: Callable[[Part, slice, Floats], None] | None,
    ) -> list[Part]:
        """Visit the probabilities of all rows block by block, in threads.

        The rows are split into eight contiguous parts, whatever the number of cores. Columns that are not derived yet
        are derived in the same pass: a metric over all classes then costs no second pass.

        Args:
            start: makes the accumulator of one part.
            visit: called as ``visit(accumulator, rows, probs)`` with the probabilities (b, k) of a block of rows; may
                overwrite them. None only derives the columns.

        Returns:
            The eight accumulators in the order of the parts: their merged sum does not depend on the number of cores.
        """
        fill = not self._cache and self._source is None and not self._single
        columns = empty_columns(len(self), self.soft_labels is not None) if fill else {}

        def run(part: list[slice]) -> Part:
            accumulator = start()
            for rows in part:
                derived, probs = self._derive(rows, "probs" if visit else None)
                for name, column in columns.items():
                    column[rows] = derived[name]
                if visit:
                    visit(accumulator, rows, probs)
            return accumulator

        parts = run_ranges(run, self.parts(), len(self) * self.classes >= 2 * _BLOCK_NUMBERS)
        if fill:
            self._keep(columns)
        return parts

    def parts(self) -> list[list[slice]]:
        """Split the rows into eight contiguous parts, and the parts into blocks that fit into a core's cache.

        Returns:
            For each part, the slices of its blocks.
        """
        step = max(1, _BLOCK_NUMBERS // self.classes)
        ranges = split_range(len(self), _PARTS)
        return [[slice(at, min(at + step, end)) for at in range(begin, end, step)] for begin, end in ranges]

    def logit_block(self, rows: slice, out: NDArray[Any]) -> NDArray[Any]:
        """Copy the logits of a block of rows, or the logarithms of its probabilities, into given memory.

        Reusing memory pays: fresh memory for every block would cost more than the arithmetic.

        Args:
            rows: the block.
            out: (m, k) memory with m >= b; its dtype is the dtype of the result.

        Returns:
            (b, k) view of the first rows of ``out``.
        """
        block = self._block(rows)
        z = out[: len(block)]
        if self._kind == "probs":
            with np.errstate(divide="ignore"):
                np.log(block, out=z, casting="same_kind")
        else:
            np.copyto(z, block, casting="unsafe")
        return z

    @property
    def possible(self) -> NDArray[np.bool_]:
        """(n,) whether the label has a probability above 0; reads one score of each row."""
        if self.soft_labels is not None:
            finite: NDArray[np.bool_] = np.isfinite(self.log_true)
            return finite
        index = np.arange(len(self)) if self._rows is None else self._rows
        impossible = -np.inf if self._kind == "logits" else 0.0
        if self._single:
            of_other = np.inf if self._kind == "logits" else 1.0
            own: NDArray[np.bool_] = self._scores[index, 0] != np.where(self.labels == 1, impossible, of_other)
            return own
        possible: NDArray[np.bool_] = np.asarray(self._scores[index, self.labels]) != impossible
        return possible

    @property
    def low_precision(self) -> bool:
        """Whether logits were given in less than double precision."""
        return self._scores.dtype.itemsize < 8 and self._scores.dtype.kind == "f" and self._kind == "logits"

    def memo(self, name: str, make: Callable[[], Part]) -> Part:
        """Compute a value once and keep it, for values that several metrics derive from the columns.

        Args:
            name: key of the value.
            make: computes the value; called only if the key is new.

        Returns:
            The value under ``name``.
        """
        if name not in self._memo:
            self._memo[name] = make()
        value: Part = self._memo[name]
        return value

    # --- internal -----------------------------------------------------------------------------------

    def _set(self, rows: Rows, kind: str, form: Form | None = None) -> None:
        self._scores, self._kind = rows.scores, kind
        self._single = rows.scores.shape[1] == 1
        self.form: Form = ("positive" if self._single else "classes") if form is None else form
        self.labels, self.soft_labels, self.weights, self.clusters = rows.labels, rows.soft, rows.weights, rows.clusters
        self.groups, self.names, self.positive, self.missing = rows.groups, rows.names, rows.positive, 0
        for column in (self.labels, self.soft_labels, self.weights, self.clusters):
            if column is not None:
                column.flags.writeable = False
        self._rows = rows.kept
        self._source: Predictions | None = None
        self._source_rows: NDArray[np.int64] | None = None
        self._cache: dict[str, NDArray[Any]] = {}
        self._memo: dict[str, Any] = {}

    def _column(self, name: str) -> NDArray[Any]:
        if name not in self._cache:
            if self._source is not None:
                self._keep({name: self._source._column(name)[self._source_rows]})
            elif self._single:
                self._keep({name: self._single_column(name)})
            else:
                self.sweep(lambda: None, None)
        return self._cache[name]

    def _single_column(self, name: str) -> NDArray[Any]:
        given = self.form == "confidence"
        blocks = (
            single_column(name, self._given(rows)[:, 0], self.labels[rows], self._kind, given)
            for rows in self._slices()
        )
        return np.concatenate(list(blocks))

    def _keep(self, columns: dict[str, NDArray[Any]]) -> None:
        for column in columns.values():
            column.flags.writeable = False
        self._cache.update(columns)

    def _given(self, rows: slice) -> NDArray[Any]:
        return self._scores[rows] if self._rows is None else self._scores[self._rows[rows]]

    def _block(self, rows: slice) -> NDArray[Any]:
        block = self._given(rows)
        if not self._single:
            return block
        # One score s of the positive class stands for the logits (0, s), or for the probabilities (1 − s, s).
        both = np.zeros((len(block), 2), np.result_type(block.dtype, np.float32))
        both[:, 1] = block[:, 0]
        if self._kind == "probs":
            both = both.astype(np.float64)
            np.subtract(1.0, both[:, 1], out=both[:, 0])
        return both

    def _derive(self, rows: slice, wanted: str | None) -> tuple[dict[str, NDArray[Any]], Floats]:
        """Derive the columns of a block of rows, and its probabilities or their logarithms if ``wanted``."""
        # The block is copied to float64, because the derivation works in place.
        block, labels = np.array(self._block(rows), dtype=np.float64), self.labels[rows]
        with np.errstate(over="ignore", divide="ignore", under="ignore"):
            derive = columns_from_logits if self._kind == "logits" else columns_from_probs
            if self.soft_labels is None:
                return derive(block, labels, wanted)
            return soften(*derive(block, labels, "log_probs"), self.soft_labels[rows], wanted)

    def _slices(self) -> list[slice]:
        return [rows for part in self.parts() for rows in part]

    def _score_blocks(self) -> Iterator[Floats]:
        return (np.asarray(self._given(rows), dtype=np.float64) for rows in self._slices())
