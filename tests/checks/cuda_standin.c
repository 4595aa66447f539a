/* Stand-ins for the functions of CUDA's runtime, cuBLAS and NCCL that training_cublas.py calls, on a
 * CPU: signatures of cuda_runtime_api.h, cublas_v2.h and nccl.h. Ranks exchange files in the folder
 * that STANDIN_FOLDER names. STANDIN_NO_GPU: the runtime counts no device. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { char internal[128]; } unique_id;
struct send { int to; size_t bytes; const void *from; };
struct receive { int from; size_t bytes; void *into; };
static int rank, ranks, grouped, sends, receives;
static unsigned long sent_to[4096], got_from[4096];
static struct send to_send[4096];
static struct receive to_receive[4096];

int cudaGetDeviceCount(int *count) { *count = 2; return getenv("STANDIN_NO_GPU") ? *count = 0, 100 : 0; }
int cudaSetDevice(int number) { return number < 0; }
int cudaGetDevice(int *number) { *number = 0; return 0; }
int cudaGetDeviceProperties(char *name, int number) { strcpy(name, "stand-in CPU"); return number; }
int cudaRuntimeGetVersion(int *version) { *version = 12090; return 0; }
const char *cudaGetErrorString(int code) { return code == 100 ? "no CUDA-capable device is detected" : "?"; }
int cudaStreamCreateWithFlags(void **stream, unsigned flags) { *stream = stream; return flags != 1; }
int cudaEventCreateWithFlags(void **event, unsigned flags) { *event = event; return flags != 2; }
int cudaEventRecord(void *event, void *stream) { return !event || !stream; }
int cudaStreamWaitEvent(void *stream, void *event, unsigned flags) { return !stream || !event || flags; }
int cudaDeviceSynchronize(void) { return 0; }
int cudaMalloc(void **pointer, size_t bytes) { return !(*pointer = malloc(bytes)); }
int cudaMemset(void *pointer, int value, size_t bytes) { memset(pointer, value, bytes); return 0; }
int cudaMemcpy(void *into, const void *from, size_t bytes, int kind) {
    memcpy(into, from, bytes);
    return kind != 1 && kind != 2;
}

int cublasCreate_v2(void **handle) { *handle = handle; return 0; }
int cublasSetStream_v2(void *handle, void *stream) { return !handle || !stream; }
int cublasSetMathMode(void *handle, int mode) { return !handle || mode != 3; }
int cublasGetVersion_v2(void *handle, int *version) { *version = 120903; return !handle; }
int cublasSgemm_v2(void *handle, int turn_a, int turn_b, int m, int n, int k, const float *alpha,
                   const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc) {
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            float sum = 0;
            for (int p = 0; p < k; p++)
                sum += (turn_a ? a[(size_t)i * lda + p] : a[(size_t)p * lda + i])
                     * (turn_b ? b[(size_t)p * ldb + j] : b[(size_t)j * ldb + p]);
            c[(size_t)j * ldc + i] = *alpha * sum + (*beta == 0 ? 0 : *beta * c[(size_t)j * ldc + i]);
        }
    return !handle;
}
int cublasSaxpy_v2(void *handle, int n, const float *alpha, const float *x, int step, float *y, int step_y) {
    for (int i = 0; i < n; i++) y[i] = *alpha * x[i] + y[i];
    return !handle || step != 1 || step_y != 1;
}
int cublasSdot_v2(void *handle, int n, const float *x, int step, const float *y, int step_y, float *out) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * y[i];
    *out = sum;
    return !handle || step != 1 || step_y != 1;
}
int cublasIsamax_v2(void *handle, int n, const float *x, int step, int *out) {
    int best = 0;
    for (int i = 0; i < n; i++)
        if ((x[i] < 0 ? -x[i] : x[i]) > (x[best] < 0 ? -x[best] : x[best])) best = i;
    *out = best + 1; /* Fortran's numbers */
    return !handle || step != 1;
}

const char *ncclGetErrorString(int code) { return code ? "internal error" : "no error"; }
int ncclGetVersion(int *version) { *version = 22903; return 0; }
int ncclGetUniqueId(unique_id *id) { memset(id->internal, 7, 128); return 0; }
int ncclCommInitRank(void **comm, int count, unique_id id, int own) {
    for (int i = 0; i < 128; i++) if (id.internal[i] != 7) return 4;
    rank = own, ranks = count, *comm = comm;
    return 0;
}
int ncclCommDestroy(void *comm) { return !comm; }
static void name(char *out, int from, int to, unsigned long number) {
    sprintf(out, "%s/%d.%d.%lu", getenv("STANDIN_FOLDER"), from, to, number);
}
static int put(int to, const void *data, size_t bytes) {
    char path[600], whole[512];
    name(whole, rank, to, sent_to[to]++);
    sprintf(path, "%s.new", whole);
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    if (file < 0 || write(file, data, bytes) != (ssize_t)bytes) return 3;
    close(file);
    return rename(path, whole) ? 3 : 0;
}
static int get(int from, void *into, size_t bytes) {
    char path[512];
    name(path, from, rank, got_from[from]++);
    for (int tries = 0; tries < 600000; tries++) {
        int file = open(path, O_RDONLY);
        if (file >= 0) {
            ssize_t count = read(file, into, bytes);
            close(file), unlink(path);
            return count == (ssize_t)bytes ? 0 : 3;
        }
        usleep(100);
    }
    return 3;
}
int ncclGroupStart(void) { grouped = 1, sends = receives = 0; return 0; }
int ncclSend(const void *from, size_t count, int type, int to, void *comm, void *stream) {
    to_send[sends++] = (struct send){to, count * 4, from};
    return !comm || !stream || type != 7 || !grouped;
}
int ncclRecv(void *into, size_t count, int type, int from, void *comm, void *stream) {
    to_receive[receives++] = (struct receive){from, count * 4, into};
    return !comm || !stream || type != 7 || !grouped;
}
int ncclGroupEnd(void) {
    int bad = 0;
    for (int i = 0; i < sends; i++) bad |= put(to_send[i].to, to_send[i].from, to_send[i].bytes);
    for (int i = 0; i < receives; i++) bad |= get(to_receive[i].from, to_receive[i].into, to_receive[i].bytes);
    grouped = 0;
    return bad;
}
int ncclAllGather(const void *from, void *into, size_t count, int type, void *comm, void *stream) {
    int bad = type != 8 || !comm || !stream;
    for (int i = 0; i < ranks; i++) bad |= put(i, from, count * 8);
    for (int i = 0; i < ranks; i++) bad |= get(i, (char *)into + i * count * 8, count * 8);
    return bad;
}
int ncclAllReduce(const float *from, float *into, size_t count, int type, int sum, void *comm, void *stream) {
    int bad = type != 7 || sum || !comm || !stream;
    float *one = malloc(count * 4), *total = calloc(count, 4);
    for (int i = 0; i < ranks; i++) bad |= put(i, from, count * 4);
    for (int i = 0; i < ranks; i++) { /* each rank begins with itself: another order of the sum */
        bad |= get((rank + i) % ranks, one, count * 4);
        for (size_t n = 0; n < count; n++) total[n] += one[n];
    }
    memcpy(into, total, count * 4);
    free(one), free(total);
    return bad;
}
