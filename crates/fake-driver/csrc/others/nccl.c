/* A stand-in for NCCL: the processes are threads of one program, memory is the host's, and work is done when it is queued, once
   all are there. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

enum { SUCCESS = 0, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
enum { MOST = 16, GROUPS = 64 };

struct id { char bytes[128]; };
struct config { size_t size; unsigned magic, version; int blocking; };

/* What the ranks of a group do together: each round collects a contribution of every rank and is then over. */
struct group {
    int used, world, joined, here, failed;
    uint64_t round;
    const void *source[MOST];
    void *target[MOST];
    size_t count[MOST];
};

struct comm {
    struct group *group;
    int rank, blocking;
    uint64_t waits_for; /* the round that its last call belongs to; 0 for none */
    bool joining;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct group groups[GROUPS];
static int names, live;

API int fake_nccl_live(void) { return live; }
API const char *ncclGetErrorString(int code) { return code == REMOTE_ERROR ? "remote process exited" : "another code"; }
API const char *ncclGetLastError(void *comm) { (void)comm; return "the stand-in's last words"; }
API int ncclGetVersion(int *version) {
    const char *text = getenv("FAKE_NCCL_VERSION");
    *version = text ? atoi(text) : 22803;
    return SUCCESS;
}
API int ncclGetUniqueId(struct id *id) {
    memset(id, 0, sizeof *id);
    pthread_mutex_lock(&lock);
    int name = names++;
    pthread_mutex_unlock(&lock);
    if (name >= GROUPS) return INVALID_USAGE;
    memcpy(id->bytes, &name, sizeof name);
    return SUCCESS;
}

static bool is_done(const struct comm *comm) {
    const struct group *group = comm->group;
    return comm->joining ? group->joined == group->world : group->round >= comm->waits_for;
}

/* With the lock held: waits if the communicator blocks. What was done before a failure stays done. */
static int settle(struct comm *comm) {
    while (comm->blocking && !is_done(comm) && !comm->group->failed) pthread_cond_wait(&changed, &lock);
    return is_done(comm) ? SUCCESS : comm->group->failed ? REMOTE_ERROR : IN_PROGRESS;
}

API int ncclCommInitRankConfig(struct comm **target, int world, struct id id, int rank, struct config *config) {
    int name;
    memcpy(&name, id.bytes, sizeof name);
    bool bad = name < 0 || name >= names || world < 1 || world > MOST || rank < 0 || rank >= world;
    if (bad || config->magic != 0xcafebeef || config->version < 21400 || config->size < 20) return INVALID_ARGUMENT;
    struct comm *comm = calloc(1, sizeof *comm);
    if (!comm) abort();
    pthread_mutex_lock(&lock);
    comm->group = &groups[name];
    comm->rank = rank;
    comm->blocking = config->blocking;
    comm->joining = true;
    comm->group->world = world;
    comm->group->joined += 1;
    live += 1;
    pthread_cond_broadcast(&changed);
    *target = comm;
    int code = settle(comm);
    pthread_mutex_unlock(&lock);
    return code;
}

API int ncclCommGetAsyncError(struct comm *comm, int *error) {
    pthread_mutex_lock(&lock);
    int blocking = comm->blocking;
    comm->blocking = 0;
    *error = settle(comm);
    comm->blocking = blocking;
    if (*error == SUCCESS) comm->joining = false;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

API int ncclCommCount(struct comm *comm, int *count) { return *count = comm->group->world, SUCCESS; }
API int ncclGroupStart(void) { return SUCCESS; }
API int ncclGroupEnd(void) { return SUCCESS; }
API int ncclCommFinalize(struct comm *comm) { (void)comm; return SUCCESS; }
API int ncclCommDestroy(struct comm *comm) {
    pthread_mutex_lock(&lock);
    live -= 1;
    pthread_mutex_unlock(&lock);
    free(comm);
    return SUCCESS;
}
API int ncclCommAbort(struct comm *comm) {
    pthread_mutex_lock(&lock);
    comm->group->failed = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return ncclCommDestroy(comm);
}

/* Adds in single or double precision; a copy is what only the root adds to zero. */
static void finish(struct group *group, size_t size, int root) {
    size_t count = group->count[0];
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (int rank = 0; rank < group->world; rank++) {
            if (root >= 0 && rank != root) continue;
            sum += size == 8 ? ((const double *)group->source[rank])[i] : ((const float *)group->source[rank])[i];
        }
        for (int rank = 0; rank < group->world; rank++) {
            /* In place, a source is read by nobody after its own element is written. */
            if (size == 8) ((double *)group->target[rank])[i] = sum;
            else ((float *)group->target[rank])[i] = (float)sum;
        }
    }
}

static int collective(struct comm *comm, const void *source, void *target, size_t count, int type, int root) {
    if (type != 7 && type != 8) return INVALID_ARGUMENT;
    pthread_mutex_lock(&lock);
    struct group *group = comm->group;
    if (group->failed || comm->waits_for > group->round) {
        pthread_mutex_unlock(&lock);
        return group->failed ? REMOTE_ERROR : INVALID_USAGE;
    }
    group->source[comm->rank] = source;
    group->target[comm->rank] = target;
    group->count[comm->rank] = count;
    comm->joining = false;
    comm->waits_for = group->round + 1;
    group->here += 1;
    if (group->here == group->world) {
        bool same = true;
        for (int rank = 1; rank < group->world; rank++) same = same && group->count[rank] == group->count[0];
        if (same) finish(group, type == 8 ? 8 : 4, root);
        else group->failed = 1;
        group->here = 0;
        group->round += 1;
        pthread_cond_broadcast(&changed);
    }
    int code = settle(comm);
    pthread_mutex_unlock(&lock);
    return code;
}

API int ncclAllReduce(const void *source, void *target, size_t count, int type, int op, struct comm *comm, void *stream) {
    (void)stream;
    return op == 0 ? collective(comm, source, target, count, type, -1) : INVALID_ARGUMENT;
}
API int ncclBroadcast(const void *source, void *target, size_t count, int type, int root, struct comm *comm, void *stream) {
    (void)stream;
    return collective(comm, source, target, count, type, root);
}
