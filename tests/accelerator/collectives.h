// Collectives between local processes in shared memory: each rank copies a piece of its data
// into its slot, all ranks meet at a barrier, each reads what it needs, and all meet again. Like
// copies, they run when their stream reaches them.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>

struct C_CCLComm_st {
  static constexpr size_t PIECE = 4 << 20, HEADER = 4096;  // bytes
  size_t ranks, rank, size;
  std::atomic<size_t>* arrived;
  size_t meetings = 0;

  C_CCLComm_st(size_t ranks, size_t rank, const char* name)
      : ranks(ranks), rank(rank), size(HEADER + ranks * PIECE) {
    int file = shm_open(name, O_CREAT | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, size)) abort();
    auto memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    arrived = static_cast<std::atomic<size_t>*>(memory);
    close(file);
    meet();
    if (rank == 0) shm_unlink(name);
  }
  ~C_CCLComm_st() { munmap(arrived, size); }
  char* slot(size_t rank) { return reinterpret_cast<char*>(arrived) + HEADER + rank * PIECE; }
  void meet() {
    auto all = ++meetings * ranks;
    ++*arrived;
    while (*arrived < all) usleep(20);
  }
};

namespace {
size_t width(C_DataType type) {
  switch (type) {
    case BOOL: case UINT8: case INT8: return 1;
    case UINT16: case INT16: case FLOAT16: case BFLOAT16: return 2;
    case UINT32: case INT32: case FLOAT32: return 4;
    case COMPLEX128: return 16;
    default: return 8;
  }
}
struct BFloat16 {
  uint16_t bits;
  BFloat16& operator=(float value) {
    memcpy(&bits, reinterpret_cast<char*>(&value) + 2, 2);
    return *this;
  }
  operator float() const {
    uint32_t wide = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
  }
};
template <typename T, typename Wide>
void reduce(C_CCLComm comm, void* to, size_t count, C_CCLReduceOp operation) {
  for (size_t i = 0; i < count; ++i) {
    Wide result = reinterpret_cast<T*>(comm->slot(0))[i];
    for (size_t rank = 1; rank < comm->ranks; ++rank) {
      Wide next = reinterpret_cast<T*>(comm->slot(rank))[i];
      if (operation == MAX) result = std::max(result, next);
      else if (operation == MIN) result = std::min(result, next);
      else if (operation == PRODUCT) result *= next;
      else result += next;
    }
    if (operation == AVG) result /= comm->ranks;
    static_cast<T*>(to)[i] = result;
  }
}
void reduce(C_CCLComm comm, void* to, size_t count, C_DataType type, C_CCLReduceOp operation) {
  switch (type) {
    case FLOAT32: return reduce<float, float>(comm, to, count, operation);
    case FLOAT64: return reduce<double, double>(comm, to, count, operation);
    case FLOAT16: return reduce<_Float16, float>(comm, to, count, operation);
    case BFLOAT16: return reduce<BFloat16, float>(comm, to, count, operation);
    case INT32: return reduce<int32_t, int64_t>(comm, to, count, operation);
    case INT64: return reduce<int64_t, int64_t>(comm, to, count, operation);
    case BOOL: case UINT8: return reduce<uint8_t, int64_t>(comm, to, count, operation);
    default: abort();
  }
}
// Calls `take` with the first element and the size of each piece once it is in all slots.
template <typename Take>
C_Status exchange(C_CCLComm comm, C_Stream stream, const void* data, size_t count, size_t width,
                  Take take) {
  add(COLLECTIVES);
  add(COLLECTIVE_BYTES, count * width);
  {
    std::lock_guard<std::mutex> lock(mutex);
    kernels_before_collectives.push_back(counters[KERNELS]);
  }
  stream->enqueue_change([=] {
    for (size_t first = 0; first < count; first += C_CCLComm_st::PIECE / width) {
      size_t elements = std::min(count - first, C_CCLComm_st::PIECE / width);
      auto source = static_cast<const char*>(data) + first * width;
      memcpy(comm->slot(comm->rank), source, elements * width);
      comm->meet();
      take(first, elements);
      comm->meet();
    }
  });
  return C_SUCCESS;
}

void add_collectives(C_DeviceInterface& api) {
  api.xccl_get_unique_id_size = [](size_t* size) { *size = 64; return C_SUCCESS; };
  api.xccl_get_unique_id = [](C_CCLRootId* id) {
    static int number = 0;
    snprintf(static_cast<char*>(id->data), id->sz, "/fake-%d-%d", getpid(), number++);
    return C_SUCCESS;
  };
  api.xccl_comm_init_rank = [](size_t ranks, C_CCLRootId* id, size_t rank, C_CCLComm* comm) {
    *comm = new C_CCLComm_st(ranks, rank, static_cast<char*>(id->data));
    return C_SUCCESS;
  };
  api.xccl_destroy_comm = [](C_CCLComm comm) {
    make_all_changes();
    delete comm;
    return C_SUCCESS;
  };
  api.xccl_get_comm_name = [](C_CCLComm, char* name) { strcpy(name, "fake"); return C_SUCCESS; };
  api.xccl_group_start = api.xccl_group_end = [] { return C_SUCCESS; };
  api.xccl_all_reduce = [](void* from, void* to, size_t count, C_DataType type,
                           C_CCLReduceOp operation, C_CCLComm comm, C_Stream stream) {
    auto size = width(type);
    return exchange(comm, stream, from, count, size, [=](size_t first, size_t elements) {
      reduce(comm, static_cast<char*>(to) + first * size, elements, type, operation);
    });
  };
  api.xccl_broadcast = [](void* data, size_t count, C_DataType type, size_t root,
                          C_CCLComm comm, C_Stream stream) {
    auto size = width(type);
    return exchange(comm, stream, data, count, size, [=](size_t first, size_t elements) {
      memcpy(static_cast<char*>(data) + first * size, comm->slot(root), elements * size);
    });
  };
  api.xccl_all_gather = [](void* from, void* to, size_t count, C_DataType type, C_CCLComm comm,
                           C_Stream stream) {
    auto size = width(type);
    return exchange(comm, stream, from, count, size, [=](size_t first, size_t elements) {
      for (size_t rank = 0; rank < comm->ranks; ++rank) {
        auto target = static_cast<char*>(to) + (rank * count + first) * size;
        memcpy(target, comm->slot(rank), elements * size);
      }
    });
  };
}
}  // namespace
