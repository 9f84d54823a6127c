#!/usr/bin/env bash
# What only a GPU can show: the real TensorRT-LLM behind the real tritonserver, with the checkpoint of your choice.
#
#   scripts/gpu_smoke.sh CHECKPOINT [TP] [GPU]      inside NVIDIA's tritonserver image with TensorRT-LLM
#
# TP 1 and a Distill (DeepSeek-R1-Distill-Qwen-7B) takes minutes; TP 8 and DeepSeek-V3 an hour, nearly all of it loading.
# GPU is a name of the catalogue, by default `auto`: those of this machine.
# Prints one line for each check: ok, FAILED, or skipped with the reason, and a last line with the counts. Exit status 0
# when nothing failed, 1 when something did, 77 when there is no GPU or no TensorRT-LLM here and nothing was checked.
set -uo pipefail
cd "$(dirname "$0")/.."

checkpoint="${1:-}"
tp="${2:-1}"
gpu="${3:-auto}"
if [ -z "$checkpoint" ]; then
  sed -n '2,10p' "$0" | sed 's/^# \{0,1\}//'
  exit 2
fi

passed=0 failed=0 skipped=0
say() { printf '%-8s %s\n' "$1" "$2"; }
ok() { passed=$((passed + 1)); say ok "$1"; }
bad() { failed=$((failed + 1)); say FAILED "$1"; [ -s "${2:-}" ] && tail -n 12 "$2" | sed 's/^/         /'; return 0; }
skip() { skipped=$((skipped + 1)); say skipped "$1"; }
check() { # check NAME COMMAND...
  local name="$1"; shift
  if "$@" >"$work/out" 2>&1; then ok "$name"; else bad "$name" "$work/out"; fi
}
finish() {
  echo "$passed ok, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ] || exit 1
  exit "${1:-0}"
}

work="$(mktemp -d)"
server=""
cleanup() {
  [ -n "$server" ] && kill -TERM "$server" 2>/dev/null && wait "$server" 2>/dev/null
  rm -rf "$work"
}
trap cleanup EXIT

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >"$work/gpus" 2>&1; then
  skip "everything: no NVIDIA driver answers here"
  finish 77
fi
found="$(grep -c '^GPU ' "$work/gpus")"
if [ "$found" -lt "$tp" ]; then
  skip "everything: TP $tp needs $tp GPUs, this machine has $found"
  finish 77
fi
if ! version="$(python3 -c 'import tensorrt_llm; print(tensorrt_llm.__version__)' 2>"$work/out" | tail -n 1)" || [ -z "$version" ]; then
  skip "everything: tensorrt_llm cannot be imported ($(tail -n 1 "$work/out"))"
  finish 77
fi
say here "$found GPUs, TensorRT-LLM $version, $(python3 --version)"

if ! command -v seekserve >/dev/null; then
  python3 -m pip install --quiet . >"$work/out" 2>&1 || { bad "pip install ." "$work/out"; finish; }
fi
check "seekserve versions knows TensorRT-LLM $version" seekserve versions "$version"
check "doctor" seekserve doctor
check "inspect" seekserve inspect "$checkpoint"
check "plan on this machine" seekserve plan "$checkpoint" --gpu "$gpu" --gpus "$tp" --tp "$tp" --trtllm-version "$version"
check "build-engine" seekserve build-engine "$checkpoint" --engine trtllm-pytorch --gpu "$gpu" --gpus "$tp" --tp "$tp" \
  --trtllm-version "$version" --out "$work/bundle"
check "render" seekserve render "$work/bundle" --out "$work/repository" --name smoke
check "check" seekserve check "$work/repository" --trtllm-version "$version"
check "install-backend" seekserve install-backend "$work/backends" --site-packages none
[ "$failed" -eq 0 ] || finish

# The arguments that we validate against tables, judged by the package itself.
check "tensorrt_llm takes llm_args.yaml as it is" python3 - "$work/bundle" <<'PY'
import sys, yaml
from pathlib import Path
from tensorrt_llm.llmapi import llm_args
bundle = Path(sys.argv[1])
given = yaml.safe_load((bundle / "llm_args.yaml").read_text())
llm_args.TorchLlmArgs(model=str(bundle / "weights"), **given)
PY

start="$(date +%s)"
seekserve launch "$work/repository" --backend-dir "$work/backends" --http-port 0 --grpc-port 0 --metrics-port 0 \
  --log-file "$work/server.log" --json >"$work/events" 2>&1 &
server=$!
while kill -0 "$server" 2>/dev/null && ! grep -q '"event": "ready"' "$work/events"; do sleep 2; done
if ! grep -q '"event": "ready"' "$work/events"; then
  bad "launch becomes ready by a generation" "$work/events"
  finish
fi
ok "launch becomes ready by a generation ($(($(date +%s) - start)) s)"
address="$(python3 -c 'import json,sys
for line in open(sys.argv[1]):
    event = json.loads(line) if line.startswith("{") else {}
    if event.get("event") == "ready": print(event["grpc_url"])' "$work/events" | tail -n 1)"

check "one streamed answer" seekserve generate "What is 37 + 48? Answer with the number." --url "$address" --max-tokens 64
check "64 streams, half of them cancelled: the server lives and the books balance" python3 - "$address" <<'PY'
import sys, threading
from seekserve.client import Client, GenerateRequest
from seekserve.errors import SeekserveError
wrong = []
def ask(n: int) -> None:
    try:
        with Client(sys.argv[1], "smoke") as client:
            request = GenerateRequest(prompt=f"Count from {n} upwards.", max_tokens=128)
            with client.stream(request) as stream:
                for place, _ in enumerate(stream):
                    if n % 2 and place > 5:
                        break
    except SeekserveError as error:
        wrong.append(str(error))
threads = [threading.Thread(target=ask, args=(n,)) for n in range(64)]
[t.start() for t in threads]
[t.join() for t in threads]
with Client(sys.argv[1], "smoke") as client:
    client.generate(GenerateRequest(prompt="Still there?", max_tokens=4))
sys.exit("; ".join(wrong[:3]) if wrong else 0)
PY
check "status" seekserve status --json
cp "$work/out" "$work/status"
python3 - "$work/bundle/bundle.json" "$work/status" <<'PY' && ok "KV capacity within 10 % of the plan" || bad "KV capacity within 10 % of the plan"
import json, sys
planned = json.load(open(sys.argv[1]))["kv_cache"]["capacity_blocks"]
def found(data):
    if isinstance(data, dict):
        yield from ([data["kv_total_blocks"]] if "kv_total_blocks" in data else [])
        data = list(data.values())
    for each in data if isinstance(data, list) else []:
        yield from found(each)
blocks = list(found(json.load(open(sys.argv[2]))))
print(f"         planned {planned} blocks, the engine has {blocks}")
sys.exit(0 if blocks and abs(blocks[0] / planned - 1) <= 0.1 else 1)
PY
nvidia-smi --query-gpu=index,memory.used,memory.total --format=csv,noheader | sed 's/^/memory   GPU /'

kill -TERM "$server"
if wait "$server"; then ok "clean stop"; else bad "clean stop" "$work/server.log"; fi
server=""
left="$(find /dev/shm -maxdepth 1 -name 'seekserve*' | wc -l)"
[ "$left" -eq 0 ] && ok "no shared memory left" || bad "$left shared-memory files left"
finish
