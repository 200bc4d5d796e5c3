#!/usr/bin/env bash
# A mesh under Slurm: one process per task; the first LIGAMENT_SERVERS processes are servers, the others workers.
#   sbatch examples/jobs/slurm.sh examples/python/afd.py [arguments]
#SBATCH --job-name=mesh
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --time=00:10:00
set -euo pipefail

program=${1:?which program: sbatch slurm.sh PROGRAM [arguments]}
shift
export LIGAMENT_SERVERS=${LIGAMENT_SERVERS:-1}

# Processes on several hosts need a secret, in a folder that the nodes share and that no other user can read.
umask 077
folder=$(mktemp -d "${LIGAMENT_SHARED:-$HOME}/.mesh-${SLURM_JOB_ID}-XXXXXX")
trap 'rm -rf "$folder"' EXIT
head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > "$folder/secret"
export LIGAMENT_SECRET_FILE=$folder/secret

# The rendezvous is on the first host of the step, at a port derived from the job's number. If one task fails, the step
# ends.
srun --kill-on-bad-exit=1 --label python3 "$program" "$@"
