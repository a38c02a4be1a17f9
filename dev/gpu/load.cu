// SPDX-License-Identifier: Apache-2.0
// load SECONDS ON_MS OFF_MS BLOCKS keeps BLOCKS multiprocessors busy for ON_MS of every ON_MS + OFF_MS, with kernels of
// the same length. It prints its PID and how many it ran.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <unistd.h>

__global__ void spin(float *out, long clocks) {
  long long begin = clock64();
  float x = threadIdx.x;
  while (clock64() - begin < clocks)
    for (int i = 0; i < 64; i++) x = x * 1.0001f + 0.5f;
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

static double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int n, char **args) {
  if (n != 5) return 2;
  double end = now() + atof(args[1]), on = atof(args[2]) / 1000, off = atof(args[3]) / 1000;
  int blocks = atoi(args[4]);
  float *out;
  if (cudaMalloc(&out, blocks * 1024 * sizeof *out) != cudaSuccess) return 1;
  long kernels = 0;
  while (now() < end) {
    for (double begin = now(); now() < begin + on && now() < end; kernels++) {
      spin<<<blocks, 1024>>>(out, 1500000);
      if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    }
    usleep(off * 1e6);
  }
  printf("%d %ld\n", getpid(), kernels);
}
