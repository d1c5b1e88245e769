#!/usr/bin/env bash
# The studies of a paper, one after the other, then their tables and figures: reproduce.sh PAPER [SCALE] [RUNS] [DATA]
#
# PAPER is morosini2026 or tan2026. SCALE is cpu-small (CIFAR-10 on two cores: many hours), digits (minutes, no data to
# fetch; it shows that they run) or paper. Killed at any moment, the same command goes on. Studies take over runs that
# earlier ones have finished. What a study needs and DATA does not hold (cifar100_5k5k.npz, svhn_2k.npz) is said, and the
# others go on. Those on ImageNet (table2-resnet, table2-vit, table-s14) and the whole of Table 1 of Tan et al. (2026)
# (table1) have to be asked for by name.
# At cpu-small it runs more than results/ has, and takes hours longer by it: all seeds of batch_sharpness, the whole grid
# of radius_and_gamma, sam_vs_sgd, BulkSGD with three and five directions found at each step, and of tan2026 on CIFAR-100
# all three seeds and the ensembles (BatchEnsemble, Rank1-BNN, MIMO). At digits it leaves out what has one scale alone.
#
# Former names are accepted: a and b for the papers, cores2 for the scale, folders paper-a-NAME and paper-b-NAME in RUNS.
set -uo pipefail
paper=${1:?morosini2026 or tan2026} scale=${2:-cpu-small} runs=${3:-runs/reproduce} data=${4:-data} workers=${WORKERS:-2}
here=$(cd "$(dirname "$0")" && pwd)
case $paper in a) paper=morosini2026 ;; b) paper=tan2026 ;; esac
case $scale in cores2) scale=cpu-small ;; esac
case $paper in
  morosini2026)
    former=paper-a
    studies=(morosini2026/search morosini2026/table1 morosini2026/batch_sharpness morosini2026/ball morosini2026/constants
             morosini2026/coupling morosini2026/bulk morosini2026/bulk@each-step morosini2026/mse morosini2026/cifar100
             morosini2026/calmo morosini2026/calmo-parts margin-tail margin-tail-parts) ;;
  tan2026)
    former=paper-b
    studies=(tan2026/losses-small tan2026/table3 tan2026/networks tan2026/sam_variants tan2026/table-s15 tan2026/table-s16
             tan2026/figure3 tan2026/figure2 tan2026/radius_and_gamma tan2026/sam_vs_sgd tan2026/sam_variants_cifar100
             tan2026/table3@cpu-small-100 tan2026/table1-small tan2026/table-s14-small) ;;
  *) echo "reproduce.sh: the paper is morosini2026 or tan2026; got '$paper'" >&2; exit 2 ;;
esac
case $scale in
  cpu-small|digits|paper) ;;
  *) echo "reproduce.sh: the scale is cpu-small, digits or paper; got '$scale'" >&2; exit 2 ;;
esac
if ! command -v surefoot > /dev/null; then
  echo "reproduce.sh: there is no command surefoot; make reproduce-$paper sets it up" >&2; exit 2
fi
mkdir -p "$runs"
if [ "$scale" != digits ] && ! surefoot data check cifar10 --data "$data" > /dev/null 2>&1; then
  surefoot data fetch cifar10 --data "$data" || exit
fi
folder() {  # where a study is: under its former name if it was begun there
  if [ -e "$runs/$former-$1" ] && [ ! -e "$runs/$paper-$1" ]; then echo "$runs/$former-$1"; else echo "$runs/$paper-$1"; fi
}
from=() failed=()
for study in "${studies[@]}"; do
  own=$scale
  if [[ $study = *@* ]]; then  # at a scale of its own: beside cpu-small alone
    if [ "$scale" != cpu-small ]; then continue; fi
    own=${study#*@} study=${study%@*}
  fi
  name=${study#"$paper"/} chosen=(--scale "$own")
  if [ "$own" != "$scale" ]; then name+=-${own#"$scale"-}; fi
  if ! grep -q '^\[scales\.' "$here/$study.toml"; then  # one file a scale: table1-small, table-s14-small
    if [ "$scale" != cpu-small ]; then continue; fi
    chosen=()
  fi
  out=$(folder "$name")
  echo "== $study"
  surefoot study "$here/$study.toml" "${chosen[@]}" --workers "$workers" --data "$data" --out "$out" "${from[@]}"
  code=$?
  if [ $code = 130 ]; then exit 130; fi
  if [ $code != 0 ]; then failed+=("$study (exit code $code)"); fi
  if [ ! -f "$out/study.json" ]; then continue; fi
  from+=(--reuse "$out")
  for kind in markdown:md csv:csv; do
    surefoot table "$out" --format "${kind%:*}" > "$out/tables.${kind#*:}" || failed+=("$study (tables as ${kind%:*})")
  done
  surefoot figures "$out" -o "$out/figures" > /dev/null || failed+=("$study (figures)")
done
if [ "$paper" = morosini2026 ] && [ "$scale" = cpu-small ]; then
  # Single runs: full-batch descent to the edge, squared error to interpolation.
  for name in edge_of_stability squared_error_interpolates; do
    surefoot train "$here/../examples/$name.toml" --data "$data" --out "$runs/$name" || failed+=("$name")
  done
fi
maps=temperature,vector,matrix,dirichlet,isotonic,isotonic-pooled,histogram,bbq,beta,platt
repair() {  # figure 3 (a) or (b): the runs of a study before and after each post-hoc method
  local letter=$1 study=$2; shift 2
  surefoot shift "$@" --corruptions none --data "$data" --figure "$study/figures/tan2026-figure-3$letter.png" --calibrate $maps \
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
if [ "$paper" = tan2026 ]; then
  study=$(folder figure3)
  if [ -f "$study/study.json" ]; then
    repair a "$study" "$study"/runs/*
    if [ "$scale" = cpu-small ]; then beside tan2026-small/floor.py "$study"; fi
  fi
  study=$(folder table3-100)
  if [ -f "$study/study.json" ]; then
    mapfile -t chosen < <(of_methods "$study")
    repair b "$study" "${chosen[@]}"
  fi
fi
if [ "$paper" = morosini2026 ] && [ "$scale" = cpu-small ]; then
  beside morosini2026-table1/cadence.py "$(folder table1)"
  beside morosini2026-cifar100/a14.py "$(folder cifar100)"
  beside morosini2026-ball/nearest.py "$data/cifar10.npz"
fi
surefoot report "$runs" -o "$runs/report.html" || failed+=("the report")
for each in "${failed[@]}"; do echo "not whole: $each"; done
[ ${#failed[@]} = 0 ]
