#!/bin/sh
# Installs the model server into a virtual environment, as the image has it.
# Usage: install.sh cpu|cuda|fleet FOLDER, from the root of the checkout.
# TORCH_INDEX: where the CPU build of torch comes from; empty for pip's own indices.
set -eu

target=$1
folder=$2

case $target in
  cpu) extras=server,trace,scale index=${TORCH_INDEX-https://download.pytorch.org/whl/cpu} ;;
  # The plain wheel of torch brings the CUDA 13 libraries with it.
  cuda) extras=server,trace,scale,gpu index= ;;
  fleet) extras=server,trace,scale,gpu,ray index= ;;
  *) echo "install.sh: no target $target; cpu, cuda or fleet" >&2; exit 2 ;;
esac

"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/pip" install --quiet --no-cache-dir --disable-pip-version-check \
  ${index:+--extra-index-url "$index"} --constraint constraints.txt ".[$extras]"

# SageMaker runs `IMAGE serve`; the word has to be on the PATH for those who override ENTRYPOINT.
printf '#!/bin/sh\nexec "%s/bin/python" -m specinfer.server "$@"\n' "$folder" > "$folder/bin/serve"
chmod 755 "$folder/bin/serve"
