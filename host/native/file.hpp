// SPDX-License-Identifier: MIT
// Files of checked sections that are replaced at once or not at all.
//
// Cost: O(bytes) time, O(1) memory. Limits: POSIX; values are in the byte order of the machine,
// which the header records. One thread a file.
//
//   | magic 8 | version u32 | byte order u32 |   then for each section
//   | tag u32 | bytes u64 | payload ... | CRC-32 of the payload u32 |
//
// A writer fills a temporary file beside the target, flushes it to the disk and renames it.
#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "errors.hpp"

namespace copal {

namespace file_detail {

inline constexpr char kMagic[9] = "copalrpl";
inline constexpr uint32_t kVersion = 2, kByteOrder = 0x01020304;

// Slices of eight: table[k][b] is the remainder of byte b followed by k zero bytes.
constexpr std::array<std::array<uint32_t, 256>, 8> crc_tables() {
  std::array<std::array<uint32_t, 256>, 8> t{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t c = b;
    for (int i = 0; i < 8; ++i) c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
    t[0][b] = c;
  }
  for (uint32_t b = 0; b < 256; ++b) {
    for (size_t k = 1; k < 8; ++k) t[k][b] = t[k - 1][b] >> 8 ^ t[0][t[k - 1][b] & 255];
  }
  return t;
}

inline uint32_t crc32(uint32_t crc, const unsigned char* p, size_t n) {
  static constexpr auto t = crc_tables();
  uint32_t c = ~crc;
  for (; n >= 8; n -= 8, p += 8) {
    c = t[7][(c ^ p[0]) & 255] ^ t[6][(c >> 8 ^ p[1]) & 255] ^ t[5][(c >> 16 ^ p[2]) & 255] ^
        t[4][(c >> 24 ^ p[3]) & 255] ^ t[3][p[4]] ^ t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
  }
  for (; n; --n, ++p) c = c >> 8 ^ t[0][(c ^ *p) & 255];
  return ~c;
}

}  // namespace file_detail

class FileWriter {
 public:
  explicit FileWriter(const std::string& path)
      : path_(path), partial_(path + ".partial." + std::to_string(::getpid())) {
    file_ = std::fopen(partial_.c_str(), "wb");
    if (!file_) fail();
    put(file_detail::kMagic, 8);
    put(&file_detail::kVersion, 4);
    put(&file_detail::kByteOrder, 4);
  }
  ~FileWriter() {
    if (file_) std::fclose(file_);
    if (!committed_) ::unlink(partial_.c_str());
  }
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void section(uint32_t tag, const void* data, uint64_t bytes) {
    put(&tag, 4);
    put(&bytes, 8);
    uint32_t crc = 0;
    const auto* p = static_cast<const unsigned char*>(data);
    for (uint64_t at = 0; at < bytes;) {  // in pieces, which are still in the cache when written
      const size_t n = bytes - at < kPiece ? bytes - at : kPiece;
      crc = file_detail::crc32(crc, p + at, n);
      put(p + at, n);
      at += n;
    }
    put(&crc, 4);
  }

  void commit() {
    if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) fail();
    std::FILE* file = file_;
    file_ = nullptr;
    if (std::fclose(file) != 0) fail();
    if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail();
    committed_ = true;
    sync_folder();
  }

 private:
  static constexpr size_t kPiece = size_t{1} << 18;

  void put(const void* data, size_t n) {
    if (std::fwrite(data, 1, n, file_) != n) fail();
  }
  [[noreturn]] void fail() const {
    throw Error("CheckpointError", path_, "a file that can be written", std::strerror(errno),
                "an older file of that name is untouched");
  }
  // Makes the rename itself durable, on file systems that ask for it.
  void sync_folder() const {
    const size_t slash = path_.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const int fd = ::open(folder.c_str(), O_RDONLY);
    if (fd < 0) return;
    ::fsync(fd);
    ::close(fd);
  }

  std::string path_, partial_;
  std::FILE* file_ = nullptr;
  bool committed_ = false;
};

class FileReader {
 public:
  explicit FileReader(const std::string& path) : path_(path) {
    file_ = std::fopen(path.c_str(), "rb");
    if (!file_) fail("a file that can be read", std::strerror(errno), "");
    char magic[8];
    uint32_t version, order;
    if (std::fread(magic, 1, 8, file_) != 8 || std::memcmp(magic, file_detail::kMagic, 8) != 0) {
      close();
      fail("a replay buffer saved by copal", "another file", "pass the path given to `save`");
    }
    try {
      get(&version, 4);
      if (version != file_detail::kVersion) {
        fail("version " + std::to_string(file_detail::kVersion), std::to_string(version),
             "load it with the version of copal that wrote it");
      }
      get(&order, 4);
      if (order != file_detail::kByteOrder) {
        fail("this machine's byte order", "the other one", "load it on a machine like the writer");
      }
    } catch (...) {
      close();
      throw;
    }
  }
  ~FileReader() { close(); }
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  // Reads the next section, which must have this tag and size, and checks it.
  void section(uint32_t tag, void* data, uint64_t bytes) {
    const uint64_t got = begin(tag);
    if (got != bytes) {
      fail(std::to_string(bytes) + " bytes in section " + std::to_string(tag), std::to_string(got),
           "the file does not belong to a buffer of this shape");
    }
    read_payload(data, bytes);
  }

  // The same for a section of any size that is held in memory.
  std::vector<std::byte> section(uint32_t tag) {
    const uint64_t bytes = begin(tag);
    struct stat info;
    if (::fstat(::fileno(file_), &info) != 0 || bytes > static_cast<uint64_t>(info.st_size)) {
      fail_truncated();
    }
    std::vector<std::byte> data(bytes);
    read_payload(data.data(), bytes);
    return data;
  }

  [[noreturn]] void fail(std::string expected, std::string got, std::string hint) const {
    throw Error("CheckpointError", path_, std::move(expected), std::move(got), std::move(hint));
  }

 private:
  static constexpr size_t kPiece = size_t{1} << 18;

  uint64_t begin(uint32_t tag) {
    uint32_t found;
    uint64_t bytes;
    get(&found, 4);
    get(&bytes, 8);
    if (found != tag) {
      fail("section " + std::to_string(tag), std::to_string(found), "the file is damaged");
    }
    return bytes;
  }
  void read_payload(void* data, uint64_t bytes) {
    uint32_t crc = 0, expected;
    auto* p = static_cast<unsigned char*>(data);
    for (uint64_t at = 0; at < bytes;) {
      const size_t n = bytes - at < kPiece ? bytes - at : kPiece;
      get(p + at, n);
      crc = file_detail::crc32(crc, p + at, n);
      at += n;
    }
    get(&expected, 4);
    if (crc != expected) fail("the checksum of its content", "another one", "the file is damaged");
  }
  void get(void* data, size_t n) {
    if (std::fread(data, 1, n, file_) != n) fail_truncated();
  }
  [[noreturn]] void fail_truncated() const {
    fail("a whole file", "one that ends too early", "it was cut short; load an earlier one");
  }
  void close() {
    if (file_) std::fclose(file_);
    file_ = nullptr;
  }

  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace copal
