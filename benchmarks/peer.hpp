// peer.hpp: another library, measured in a process of its own.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "bench.hpp"

namespace lastdoor::bench {

/// A command that gets the ports of the servers as arguments, reads numbers of
/// pairs and answers each with the seconds that they took.
class peer {
 public:
  peer(const std::string& command, const std::vector<int>& ports) {
    std::string line = "exec " + command;
    for (const int port : ports) {
      line += ' ' + std::to_string(port);
    }
    int to[2];
    int from[2];
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) {
      stop("no pipe");
    }
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(to[0], STDIN_FILENO);
      ::dup2(from[1], STDOUT_FILENO);
      ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      ::_exit(127);
    }
    if (pid_ < 0) {
      stop("cannot fork");
    }
    ::close(to[0]);
    ::close(from[1]);
    asks_ = ::fdopen(to[1], "w");
    answers_ = ::fdopen(from[0], "r");
  }
  peer(const peer&) = delete;
  peer& operator=(const peer&) = delete;
  ~peer() {
    std::fclose(asks_);
    std::fclose(answers_);
    ::waitpid(pid_, nullptr, 0);
  }
  double pairs(int n) {
    double seconds = 0;
    if (std::fprintf(asks_, "%d\n", n) < 0 || std::fflush(asks_) != 0 ||
        std::fscanf(answers_, "%lf", &seconds) != 1) {
      stop("the peer does not answer");
    }
    return seconds;
  }

 private:
  pid_t pid_;
  std::FILE* asks_;
  std::FILE* answers_;
};

}  // namespace lastdoor::bench
