// reference_locks.hpp: the smallest lock service that keeps the contract.
//
// It lies in memory that a test shares with the processes it forks. It shows
// that the contract asks for nothing that only one back end can do, and it can
// lose its answers.
#pragma once

#include <pthread.h>
#include <sys/mman.h>
#include <lastdoor/lock_backend.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <system_error>

namespace lastdoor::testing {

class reference_locks {
 public:
  reference_locks() {
    void* p = ::mmap(nullptr, sizeof(memory), PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
      throw std::system_error{errno, std::generic_category(), "mmap"};
    }
    memory_ = new (p) memory;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    // A client may be killed inside.
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&memory_->guard, &attributes);
    pthread_mutexattr_destroy(&attributes);
  }
  reference_locks(const reference_locks&) = delete;
  reference_locks& operator=(const reference_locks&) = delete;
  ~reference_locks() { ::munmap(memory_, sizeof(memory)); }

  [[nodiscard]] std::unique_ptr<lock_backend> connect() {
    return std::make_unique<backend>(*memory_);
  }
  void lose_next_reply() { memory_->lose_next = true; }

 private:
  template <std::size_t N>
  struct text {
    char bytes[N + 1];
    void operator=(const std::string& s) { bytes[s.copy(bytes, N)] = '\0'; }
    bool operator==(const std::string& s) const { return s == bytes; }
  };

  struct lease {
    text<resource_name::max_bytes> resource;
    text<128> owner;
    text<128> holder;
    std::int64_t token;
    time_point expires_at;
    bool released;

    [[nodiscard]] bool held() const {
      return !released && boot_clock()->now() < expires_at;
    }
    [[nodiscard]] bool belongs_to(const grant& g) const {
      return owner == g.owner().str() && token == g.token().value();
    }
  };

  struct memory {
    pthread_mutex_t guard;
    bool lose_next;
    std::int64_t counter;
    std::size_t used;
    lease leases[1024];
  };

  class lock {
   public:
    explicit lock(memory& m) : m_{m} {
      if (pthread_mutex_lock(&m_.guard) == EOWNERDEAD) {
        pthread_mutex_consistent(&m_.guard);
      }
    }
    ~lock() { pthread_mutex_unlock(&m_.guard); }
    lock(const lock&) = delete;
    lock& operator=(const lock&) = delete;

   private:
    memory& m_;
  };

  class backend final : public lock_backend {
   public:
    explicit backend(memory& m) : m_{m} {}

    [[nodiscard]] const source_name& source() const noexcept override {
      return source_;
    }
    [[nodiscard]] duration max_ttl() const noexcept override {
      return std::chrono::hours{24};
    }
    [[nodiscard]] duration call_timeout() const noexcept override {
      return std::chrono::seconds{1};
    }

    [[nodiscard]] result<lease_answer> try_acquire(
        const lease_request& r) override {
      const auto started = boot_clock()->now();
      if (started >= r.deadline) {
        return fail(errc::unavailable, "too late");
      }
      const lock here{m_};
      lease* l = find(r.resource);
      if (l != nullptr && l->held()) {
        return busy(*l, r.resource);
      }
      if (m_.counter >= fencing_token::max) {
        return fail(errc::token_exhausted, "the last token is gone");
      }
      if (l == nullptr) {
        l = &m_.leases[m_.used];
        l->resource = r.resource.str();
      }
      l->released = true;  // until all of it is there
      l->token = ++m_.counter;
      l->owner = r.owner.str();
      l->holder = r.holder;
      l->expires_at = boot_clock()->now() + r.ttl;
      l->released = false;
      m_.used = std::max(m_.used, static_cast<std::size_t>(l - m_.leases) + 1);
      if (lost()) {
        l->released = true;
        return fail(errc::unavailable, "no answer came, and it was undone");
      }
      return lease_answer{fencing_token::from(l->token).value(),
                          started + r.ttl};
    }

    [[nodiscard]] result<time_point> renew(const grant& g, duration ttl,
                                           time_point) override {
      const auto started = boot_clock()->now();
      const lock here{m_};
      lease* l = find(g.resource());
      if (l == nullptr || !l->belongs_to(g) || !l->held()) {
        return fail(errc::not_owner, "not yours");
      }
      l->expires_at = std::max(l->expires_at, boot_clock()->now() + ttl);
      if (lost()) {
        return fail(errc::in_doubt, "no answer came");
      }
      return started + ttl;
    }

    [[nodiscard]] result<void> release(const grant& g, time_point) override {
      const lock here{m_};
      lease* l = find(g.resource());
      if (l == nullptr || !l->belongs_to(g) || !(l->held() || l->released)) {
        return fail(errc::not_owner, "not yours");
      }
      l->released = true;
      if (lost()) {
        return fail(errc::in_doubt, "no answer came");
      }
      return {};
    }

    [[nodiscard]] result<lease_status> inspect(
        const resource_name& resource) override {
      const lock here{m_};
      const lease* l = find(resource);
      if (l == nullptr || !l->held()) {
        return lease_status{};
      }
      return lease_status{true, l->holder.bytes,
                          mark{fencing_token::from(l->token).value()},
                          l->expires_at - boot_clock()->now()};
    }

    [[nodiscard]] result<void> raise_floor(mark floor) override {
      const lock here{m_};
      m_.counter = std::max(m_.counter, floor.value());
      return {};
    }

   private:
    lease* find(const resource_name& resource) {
      auto* end = m_.leases + m_.used;
      auto* l = std::find_if(m_.leases, end, [&](const lease& one) {
        return one.resource == resource.str();
      });
      return l == end ? nullptr : l;
    }
    static error busy(const lease& l, const resource_name& resource) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(
          l.expires_at - boot_clock()->now());
      return fail(errc::busy, std::string{"held by "} + l.holder.bytes)
          .about(resource.str())
          .retry_after_ms(std::max<std::int64_t>(left.count(), 1));
    }
    bool lost() { return std::exchange(m_.lose_next, false); }

    memory& m_;
    source_name source_ = source_name::parse("reference/1").value();
  };

  memory* memory_;
};

}  // namespace lastdoor::testing
