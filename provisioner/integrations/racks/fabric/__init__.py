"""What the GPUs, IMEX and NCCL of one NVLink domain say of it."""
