#!/usr/bin/env bash
# A mesh under PBS: one process per MPI rank; the first LIGAMENT_SERVERS processes are servers, the others workers. MPI
# only starts the processes; they do not use it.
#   qsub -v PROGRAM=examples/python/afd.py examples/jobs/pbs.sh
#PBS -N mesh
#PBS -l select=2:ncpus=4:mpiprocs=4
#PBS -l walltime=00:10:00
set -euo pipefail

cd "${PBS_O_WORKDIR:-.}"
: "${PROGRAM:?which program: qsub -v PROGRAM=script.py pbs.sh}"
export LIGAMENT_SERVERS=${LIGAMENT_SERVERS:-1}

# Other hosts may be unable to read the file of nodes, so all processes get the first host and a port derived from the
# job's number. The mesh uses the port above it.
MASTER_ADDR=$(head -n 1 "$PBS_NODEFILE")
MASTER_PORT=$((20000 + ${PBS_JOBID%%[!0-9]*} % 10000))
export MASTER_ADDR MASTER_PORT

# Processes on several hosts need a secret, in a folder that the nodes share and that no other user can read.
umask 077
folder=$(mktemp -d "${LIGAMENT_SHARED:-$HOME}/.mesh-${PBS_JOBID%%[!0-9]*}-XXXXXX")
trap 'rm -rf "$folder"' EXIT
head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \n' > "$folder/secret"
export LIGAMENT_SECRET_FILE=$folder/secret

count=$(wc -l < "$PBS_NODEFILE")
variables=(LIGAMENT_SERVERS LIGAMENT_SECRET_FILE MASTER_ADDR MASTER_PORT)
# Open MPI forwards only the listed variables, other implementations forward all.
pass=()
if mpiexec --version 2>&1 | grep -qi 'open.\?mpi\|openrte'; then
    for name in "${variables[@]}"; do
        pass+=(-x "$name")
    done
fi
mpiexec -n "$count" "${pass[@]}" python3 "$PROGRAM"
