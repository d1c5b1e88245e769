#!/usr/bin/env bash
# The studies of a paper, one after the other, then their tables and figures: studies/reproduce.sh a|b [SCALE] [RUNS] [DATA]
#
# SCALE is cores2 (CIFAR-10 on two cores: many hours), digits (minutes, no data to fetch; it shows that they run) or
# paper. Killed at any moment, the same command goes on. Studies take over runs that earlier ones have finished. What a
# study needs and DATA does not hold (cifar100_5k5k.npz, svhn_2k.npz) is said, and the others go on. Those on ImageNet
# (table2-resnet, table2-vit, table-s14) and the whole of paper B's Table 1 (table1) have to be asked for by name.
# At cores2 it runs more than results/ has, and takes hours longer by it: all seeds of batch_sharpness, the whole grid of
# radius_and_gamma, sam_vs_sgd, BulkSGD with three and five directions found at each step, and of paper B on CIFAR-100 all
# three seeds and the ensembles (BatchEnsemble, Rank1-BNN, MIMO). At digits it leaves out what has one scale alone.
set -uo pipefail
paper=${1:?a or b} scale=${2:-cores2} runs=${3:-runs/reproduce} data=${4:-data} workers=${WORKERS:-2}
here=$(cd "$(dirname "$0")" && pwd)
case $paper in
  a) studies=(paper-a/search paper-a/table1 paper-a/batch_sharpness paper-a/ball paper-a/constants paper-a/coupling paper-a/bulk paper-a/bulk@each-step paper-a/mse paper-a/cifar100
              paper-a/calmo paper-a/calmo-parts margin-tail margin-tail-parts) ;;
  b) studies=(paper-b/losses-small paper-b/table3 paper-b/networks paper-b/sam_variants paper-b/table-s15 paper-b/table-s16
              paper-b/figure3 paper-b/figure2 paper-b/radius_and_gamma paper-b/sam_vs_sgd paper-b/sam_variants_cifar100
              paper-b/table3@cores2-100 paper-b/table1-small paper-b/table-s14-small) ;;
  *) echo "reproduce.sh: the paper is a or b; got '$paper'" >&2; exit 2 ;;
esac
case $scale in
  cores2|digits|paper) ;;
  *) echo "reproduce.sh: the scale is cores2, digits or paper; got '$scale'" >&2; exit 2 ;;
esac
if ! command -v surefoot > /dev/null; then
  echo "reproduce.sh: there is no command surefoot; make reproduce-$paper sets it up" >&2; exit 2
fi
mkdir -p "$runs"
if [ "$scale" != digits ] && ! surefoot data check cifar10 --data "$data" > /dev/null 2>&1; then
  surefoot data fetch cifar10 --data "$data" || exit
fi
from=() failed=()
for study in "${studies[@]}"; do
  own=$scale
  if [[ $study = *@* ]]; then  # at a scale of its own: beside cores2 alone
    if [ "$scale" != cores2 ]; then continue; fi
    own=${study#*@} study=${study%@*}
  fi
  name=${study#paper-?/} chosen=(--scale "$own")
  if [ "$own" != "$scale" ]; then name+=-${own#"$scale"-}; fi
  if ! grep -q '^\[scales\.' "$here/$study.toml"; then  # one file a scale: table1-small, table-s14-small
    if [ "$scale" != cores2 ]; then continue; fi
    chosen=()
  fi
  out=$runs/paper-$paper-$name
  echo "== $study"
  surefoot study "$here/$study.toml" "${chosen[@]}" --workers "$workers" --data "$data" --out "$out" "${from[@]}"
  code=$?
  if [ $code = 130 ]; then exit 130; fi
  if [ $code != 0 ]; then failed+=("$study (exit code $code)"); fi
  if [ ! -f "$out/study.json" ]; then continue; fi
  from+=(--from "$out")
  for kind in markdown:md csv:csv; do
    surefoot table "$out" --format "${kind%:*}" > "$out/tables.${kind#*:}" || failed+=("$study (tables as ${kind%:*})")
  done
  surefoot figures "$out" -o "$out/figures" > /dev/null || failed+=("$study (figures)")
done
if [ "$paper" = a ] && [ "$scale" = cores2 ]; then  # single runs: full-batch descent to the edge, squared error to interpolation
  for name in edge_of_stability squared_error_interpolates; do
    surefoot train "$here/../examples/$name.toml" --data "$data" --out "$runs/$name" || failed+=("$name")
  done
fi
maps=temperature,vector,matrix,dirichlet,isotonic,isotonic-pooled,histogram,bbq,beta,platt
repair() {  # figure 3 (a) or (b): the runs of a study before and after each post-hoc method
  local letter=$1 study=$2; shift 2
  surefoot shift "$@" --corruptions none --data "$data" --figure "$study/figures/paper-b-figure-3$letter.png" --calibrate $maps \
    > "$runs/figure3$letter.txt" || failed+=("figure 3 ($letter)")
}
of_methods() {  # folders of a study's runs under SGD (CE), SAM and CSAM
  python - "$1" << 'end'
import json, pathlib, sys
study = pathlib.Path(sys.argv[1])
runs = json.loads((study / "study.json").read_text())["runs"]
print(*(study / "runs" / run["id"] for run in runs if run["label"].split()[0] in ("CE", "SGD", "SAM", "CSAM")), sep="\n")
end
}
beside() {  # a script beside a page of results, on what was made here
  python "$here/../results/$1" "${@:2}" > "$runs/$(basename "$1" .py).txt" || failed+=("$1")
}
if [ "$paper" = b ] && [ -f "$runs/paper-b-figure3/study.json" ]; then
  repair a "$runs/paper-b-figure3" "$runs"/paper-b-figure3/runs/*
  if [ "$scale" = cores2 ]; then beside paper-b-small/floor.py "$runs/paper-b-figure3"; fi
fi
if [ "$paper" = b ] && [ -f "$runs/paper-b-table3-100/study.json" ]; then
  mapfile -t chosen < <(of_methods "$runs/paper-b-table3-100")
  repair b "$runs/paper-b-table3-100" "${chosen[@]}"
fi
if [ "$paper" = a ] && [ "$scale" = cores2 ]; then
  beside paper-a-table1/cadence.py "$runs/paper-a-table1"
  beside paper-a-cifar100/a14.py "$runs/paper-a-cifar100"
  beside paper-a-ball/nearest.py "$data/cifar10.npz"
fi
surefoot report "$runs" -o "$runs/report.html" || failed+=("the report")
for each in "${failed[@]}"; do echo "not whole: $each"; done
[ ${#failed[@]} = 0 ]
