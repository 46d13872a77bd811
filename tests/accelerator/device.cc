// A fake accelerator for Paddle: a custom device that uses host memory and whose streams are
// sleeping threads. A stream queues the simulated durations of kernels and copies, and the events
// between them. Its times are no measurements.
//
// Copies and collectives change memory when their stream reaches them, or as soon as something
// that is ordered behind them needs their result. What reads it without waiting finds the old
// values, and in new or freed memory NaN. Kernels compute when they are called, after the changes
// that their own stream has queued.
//
// Environment: FAKE_NAME, the device type ("fake"); FAKE_DEVICES, their number (2);
// FAKE_MEMORY_BYTES, the memory of each (4 GiB).
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels.h"
#include "paddle/phi/backends/device_ext.h"

namespace {
// In the order of NAMES in fake.py.
enum Counter {
  DEVICE_SYNCS, STREAM_SYNCS, EVENT_SYNCS, TO_DEVICE, TO_HOST, ON_DEVICE, TO_DEVICE_BYTES,
  TO_HOST_BYTES, ON_DEVICE_BYTES, EVENTS, QUERIES, STREAM_WAITS, ALLOCATED_BYTES, KERNELS,
  COLLECTIVES, COLLECTIVE_BYTES, COUNTERS
};
size_t counters[COUNTERS];
// The number of kernels before each collective.
std::vector<size_t>& kernels_before_collectives = *new std::vector<size_t>;
double copy_seconds = 0;
double kernel_seconds = 0;
thread_local int current_device = 0;
// Guard streams and events. Never destroyed: threads still wait on them at process exit.
std::mutex& mutex = *new std::mutex;
std::condition_variable& changed = *new std::condition_variable;

void add(Counter counter, size_t amount = 1) {
  bool within = counter == STREAM_SYNCS || counter == ON_DEVICE || counter == ON_DEVICE_BYTES;
  if (in_kernel && within) return;
  __atomic_fetch_add(&counters[counter], amount, __ATOMIC_RELAXED);
}
size_t setting(const char* variable, size_t otherwise) {
  auto text = getenv(variable);
  return text ? strtoull(text, nullptr, 10) : otherwise;
}
void pass_time(double seconds) {
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}
}  // namespace

struct C_Stream_st {
  std::deque<std::function<void()>> queue;
  size_t enqueued = 0, done = 0;
  std::deque<std::function<void()>> changes;  // of memory, not yet made
  size_t changes_added = 0, changes_made = 0;
  std::mutex changing;
  bool ending = false;
  std::thread thread{[this] { run(); }};

  void run() {
    std::unique_lock<std::mutex> lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return ending || !queue.empty(); });
      if (queue.empty()) return;
      auto work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      work();
      lock.lock();
      ++done;
      changed.notify_all();
    }
  }
  void enqueue(std::function<void()> work) {
    std::lock_guard<std::mutex> lock(mutex);
    queue.push_back(std::move(work));
    ++enqueued;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex);
    auto target = enqueued;
    changed.wait(lock, [&] { return done >= target; });
  }
  void enqueue_change(std::function<void()> change) {
    size_t number;
    {
      std::lock_guard<std::mutex> lock(mutex);
      changes.push_back(std::move(change));
      number = ++changes_added;
    }
    enqueue([=] { make_changes(number); });
  }
  // Makes the first `target` changes of the stream that are not yet made, without passing time.
  void make_changes(size_t target) {
    if (made(target)) return;
    std::lock_guard<std::mutex> in_order(changing);
    while (!made(target)) {
      next_change()();
      std::lock_guard<std::mutex> lock(mutex);
      ++changes_made;
    }
  }
  void make_all_changes() {
    size_t target;
    {
      std::lock_guard<std::mutex> lock(mutex);
      target = changes_added;
    }
    make_changes(target);
  }

 private:
  bool made(size_t target) {
    std::lock_guard<std::mutex> lock(mutex);
    return changes_made >= target;
  }
  std::function<void()> next_change() {
    std::lock_guard<std::mutex> lock(mutex);
    auto change = std::move(changes.front());
    changes.pop_front();
    return change;
  }
};

// Shared with the streams: an event may be destroyed before they pass it or wait for it.
struct EventState {
  size_t recorded = 0, passed = 0;  // times
  double seconds = 0;               // steady clock at the last pass
  C_Stream stream = nullptr;        // of the last recording
  size_t changes = 0;               // of that stream before it
};
struct C_Event_st {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

namespace {
std::set<C_Stream>& streams = *new std::set<C_Stream>;  // of all devices

std::vector<C_Stream> all_streams() {
  std::lock_guard<std::mutex> lock(mutex);
  return {streams.begin(), streams.end()};
}
void make_all_changes() {
  for (auto stream : all_streams()) stream->make_all_changes();
}
// Kernels know their stream by an odd address, by which their own copies are told from others.
bool is_of_kernel(C_Stream stream) { return reinterpret_cast<uintptr_t>(stream) & 1; }
C_Stream without_mark(C_Stream stream) {
  return reinterpret_cast<C_Stream>(reinterpret_cast<uintptr_t>(stream) & ~uintptr_t(1));
}

C_Status create_stream(const C_Device, C_Stream* stream) {
  *stream = new C_Stream_st;
  std::lock_guard<std::mutex> lock(mutex);
  streams.insert(*stream);
  return C_SUCCESS;
}
C_Status destroy_stream(const C_Device, C_Stream stream) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!stream || !streams.erase(stream)) return C_SUCCESS;
    stream->ending = true;
    changed.notify_all();
  }
  // Not deleted: events refer to it.
  stream->thread.join();
  return C_SUCCESS;
}
C_Status query_stream(const C_Device, C_Stream stream) {
  std::lock_guard<std::mutex> lock(mutex);
  return stream->done == stream->enqueued ? C_SUCCESS : C_FAILED;
}
C_Status add_callback(const C_Device device, C_Stream stream, C_Callback callback, void* data) {
  stream->enqueue([=] {
    C_Status status = C_SUCCESS;
    callback(device, stream, data, &status);
  });
  return C_SUCCESS;
}
C_Status synchronize_stream(const C_Device, C_Stream stream) {
  add(STREAM_SYNCS);
  without_mark(stream)->wait();
  return C_SUCCESS;
}
C_Status synchronize_device(const C_Device) {
  add(DEVICE_SYNCS);
  for (auto stream : all_streams()) stream->wait();
  return C_SUCCESS;
}

C_Status create_event(const C_Device, C_Event* event) {
  *event = new C_Event_st;
  return C_SUCCESS;
}
C_Status destroy_event(const C_Device, C_Event event) {
  delete event;
  return C_SUCCESS;
}
C_Status record_event(const C_Device, C_Stream stream, C_Event event) {
  add(EVENTS);
  auto state = event->state;
  size_t number;
  {
    std::lock_guard<std::mutex> lock(mutex);
    number = ++state->recorded;
    state->stream = stream;
    state->changes = stream->changes_added;
  }
  stream->enqueue([=] {
    using Clock = std::chrono::steady_clock;
    std::lock_guard<std::mutex> lock(mutex);
    state->passed = number;
    state->seconds = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
    changed.notify_all();
  });
  return C_SUCCESS;
}
C_Status query_event(const C_Device, C_Event event) {
  add(QUERIES);
  std::lock_guard<std::mutex> lock(mutex);
  return event->state->passed == event->state->recorded ? C_SUCCESS : C_FAILED;
}
// Returns a wait for the current recording of the event. Reading the target when the wait starts
// would block forever in DataParallel, which records its events again.
std::function<void()> wait_for(C_Event event) {
  std::lock_guard<std::mutex> lock(mutex);
  return [state = event->state, target = event->state->recorded] {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return state->passed >= target; });
  };
}
C_Status synchronize_event(const C_Device, C_Event event) {
  {
    // Paddle also synchronizes each event that it destroys.
    std::lock_guard<std::mutex> lock(mutex);
    if (event->state->passed == event->state->recorded) return C_SUCCESS;
  }
  add(EVENT_SYNCS);
  wait_for(event)();
  return C_SUCCESS;
}
C_Status stream_wait_event(const C_Device, C_Stream stream, C_Event event) {
  add(STREAM_WAITS);
  C_Stream other;
  size_t changes;
  {
    std::lock_guard<std::mutex> lock(mutex);
    other = event->state->stream;
    changes = event->state->changes;
  }
  stream->enqueue(wait_for(event));
  if (other) stream->enqueue_change([=] { other->make_changes(changes); });
  return C_SUCCESS;
}

template <Counter copies, Counter bytes>
C_Status copy(const C_Device, void* target, const void* source, size_t size) {
  add(copies);
  add(bytes, size);
  // As CUDA's default stream, which waits for all others.
  make_all_changes();
  pass_time(copy_seconds);
  memcpy(target, source, size);
  return C_SUCCESS;
}
template <Counter copies, Counter bytes>
C_Status copy_async(const C_Device, C_Stream stream, void* target, const void* source,
                    size_t size) {
  add(copies);
  add(bytes, size);
  if (is_of_kernel(stream)) {
    // The kernel goes on with the copied values.
    memcpy(target, source, size);
    return C_SUCCESS;
  }
  if (copy_seconds > 0) stream->enqueue([seconds = copy_seconds] { pass_time(seconds); });
  if (copies == TO_DEVICE) {
    // As CUDA does with pageable memory, which may change when this returns.
    auto staged = std::make_shared<std::vector<char>>(size);
    memcpy(staged->data(), source, size);
    stream->enqueue_change([=] { memcpy(target, staged->data(), size); });
    return C_SUCCESS;
  }
  stream->enqueue_change([=] { memcpy(target, source, size); });
  if (copies == TO_HOST) stream->wait();  // as CUDA does with pageable memory
  return C_SUCCESS;
}
C_Status copy_peer(const C_Device device, const C_Device, void* target, const void* source,
                   size_t size) {
  return copy<ON_DEVICE, ON_DEVICE_BYTES>(device, target, source, size);
}
C_Status copy_peer_async(const C_Device device, const C_Device, C_Stream stream, void* target,
                         const void* source, size_t size) {
  return copy_async<ON_DEVICE, ON_DEVICE_BYTES>(device, stream, target, source, size);
}

size_t device_count() { return setting("FAKE_DEVICES", 2); }
size_t device_bytes() { return setting("FAKE_MEMORY_BYTES", size_t(4) << 30); }

C_Status allocate(const C_Device, void** pointer, size_t size) {
  *pointer = aligned_alloc(256, (size + 255) / 256 * 256);
  return *pointer ? C_SUCCESS : C_FAILED;
}
C_Status deallocate(const C_Device, void* pointer, size_t) {
  free(pointer);
  return C_SUCCESS;
}
// Fills memory with NaN, or -1 in integers.
void poison(void* pointer, size_t size) { memset(pointer, 0xff, size); }
C_Status device_allocate(const C_Device device, void** pointer, size_t size) {
  if (counters[ALLOCATED_BYTES] + size > device_bytes()) {
    // For any status but success Paddle reports only a number.
    *pointer = nullptr;
    return C_SUCCESS;
  }
  add(ALLOCATED_BYTES, size);
  auto status = allocate(device, pointer, size);
  if (*pointer) poison(*pointer, size);
  return status;
}
C_Status device_deallocate(const C_Device device, void* pointer, size_t size) {
  // Paddle also frees failed allocations.
  if (!pointer) return C_SUCCESS;
  add(ALLOCATED_BYTES, -size);
  // As CUDA, which waits for the device before it frees memory.
  make_all_changes();
  poison(pointer, size);
  return deallocate(device, pointer, size);
}
}  // namespace

#include "collectives.h"

void* passed_to(void* address) {
  auto stream = static_cast<C_Stream>(address);
  add(KERNELS);
  stream->make_all_changes();
  if (kernel_seconds > 0) {
    stream->enqueue([seconds = kernel_seconds] { pass_time(seconds); });
  }
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(stream) | 1);
}

// For tests, through ctypes.
extern "C" void fake_counters(size_t* to) { memcpy(to, counters, sizeof counters); }
// Writes the number of kernels before each of the last `count` collectives.
extern "C" void fake_collectives(size_t* to, size_t count) {
  std::lock_guard<std::mutex> lock(mutex);
  std::copy(kernels_before_collectives.end() - count, kernels_before_collectives.end(), to);
}
extern "C" void fake_kernel_seconds(double seconds) { kernel_seconds = seconds; }
extern "C" void fake_copy_seconds(double seconds) { copy_seconds = seconds; }
extern "C" double fake_event_seconds(C_Event event) { return event->state->seconds; }
// Enqueues work of this duration on all streams.
extern "C" void fake_work(double seconds) {
  for (auto stream : all_streams()) stream->enqueue([=] { pass_time(seconds); });
}

extern "C" void InitPlugin(CustomRuntimeParams* params) {
  PADDLE_CUSTOM_RUNTIME_CHECK_VERSION(params);
  static std::string name = getenv("FAKE_NAME") ? getenv("FAKE_NAME") : "fake";
  params->device_type = name.data();
  params->sub_device_type = const_cast<char*>("v1");
  auto& api = *params->interface;
  auto size = api.size;
  memset((void*)&api, 0, sizeof api);
  api.size = size;

  auto nothing = [](const C_Device) { return C_SUCCESS; };
  api.initialize = [] { return C_SUCCESS; };
  api.finalize = [] { return C_SUCCESS; };
  api.init_device = api.deinit_device = nothing;
  api.set_device = [](const C_Device device) { current_device = device->id; return C_SUCCESS; };
  api.get_device = [](const C_Device device) { device->id = current_device; return C_SUCCESS; };
  api.get_device_count = [](size_t* count) { *count = device_count(); return C_SUCCESS; };
  api.get_device_list = [](size_t* devices) {
    for (size_t i = 0; i < device_count(); ++i) devices[i] = i;
    return C_SUCCESS;
  };

  api.create_stream = create_stream;
  api.destroy_stream = destroy_stream;
  api.query_stream = query_stream;
  api.stream_add_callback = add_callback;
  api.synchronize_stream = synchronize_stream;
  api.synchronize_device = synchronize_device;
  api.create_event = create_event;
  api.destroy_event = destroy_event;
  api.record_event = record_event;
  api.query_event = query_event;
  api.synchronize_event = synchronize_event;
  api.stream_wait_event = stream_wait_event;

  api.device_memory_allocate = device_allocate;
  api.device_memory_deallocate = device_deallocate;
  api.host_memory_allocate = api.unified_memory_allocate = allocate;
  api.host_memory_deallocate = api.unified_memory_deallocate = deallocate;
  api.device_memory_set = [](const C_Device, void* pointer, unsigned char value, size_t size) {
    make_all_changes();
    memset(pointer, value, size);
    return C_SUCCESS;
  };
  api.memory_copy_h2d = copy<TO_DEVICE, TO_DEVICE_BYTES>;
  api.memory_copy_d2h = copy<TO_HOST, TO_HOST_BYTES>;
  api.memory_copy_d2d = copy<ON_DEVICE, ON_DEVICE_BYTES>;
  api.memory_copy_p2p = copy_peer;
  api.async_memory_copy_h2d = copy_async<TO_DEVICE, TO_DEVICE_BYTES>;
  api.async_memory_copy_d2h = copy_async<TO_HOST, TO_HOST_BYTES>;
  api.async_memory_copy_d2d = copy_async<ON_DEVICE, ON_DEVICE_BYTES>;
  api.async_memory_copy_p2p = copy_peer_async;
  api.device_memory_stats = [](const C_Device, size_t* total, size_t* free) {
    *total = device_bytes();
    *free = *total - std::min(*total, counters[ALLOCATED_BYTES]);
    return C_SUCCESS;
  };
  api.device_min_chunk_size = [](const C_Device, size_t* size) { *size = 256; return C_SUCCESS; };
  api.is_float16_supported = api.is_bfloat16_supported =
      [](const C_Device, bool* supported) { *supported = true; return C_SUCCESS; };
  add_collectives(api);
  register_kernels(params->device_type);
}
