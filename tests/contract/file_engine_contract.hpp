#pragma once
// What a FileEngine must do, whichever service it found. A backend is a type with
//   static void prepare(FaultyIo& io);                  // so that open() chooses the service to be tested
//   static constexpr FileEngine::Service kService; static constexpr bool kDirect;
//   static FaultyIo::Verdict manners();                 // how its system behaves where a test asks for nothing special
// and instantiates the suite: INSTANTIATE_TYPED_TEST_SUITE_P(Name, FileEngineContract, Backend).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "memory/arena.hpp"
#include "memory/io/faulty_io.hpp"
#include "memory/io/file_engine.hpp"
#include "memory/io/pattern.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace sluice::memory::contract {

inline constexpr std::int64_t kFileBytes = 4 * kMiB;
inline constexpr std::int64_t kBlock = 64 * kKiB;
inline constexpr int kReadDepth = 4;
inline constexpr int kWriteDepth = 6;
inline constexpr auto kRead = IoDirection::kRead;
inline constexpr auto kWrite = IoDirection::kWrite;

template <typename Backend>
class FileEngineContract : public ::testing::Test {
 protected:
  void SetUp() override {
    Backend::prepare(io_);
    std::string content(static_cast<std::size_t>(kFileBytes), '\0');
    fill(reinterpret_cast<std::byte*>(content.data()), 0, kFileBytes, 0);
    path_ = dir_.write("file", content);
    engine_ = open(path_);
    if (engine_->service() != Backend::kService || engine_->is_direct() != Backend::kDirect) {
      GTEST_SKIP() << "the directory for temporary files doesn't allow this service: " << engine_->note();
    }
    if (engine_->is_direct()) io_.sector = engine_->alignment().transfer;
    io_.arm(Backend::manners());
  }
  void TearDown() override {
    io_.release(kRead);
    io_.release(kWrite);
  }
  std::unique_ptr<FileEngine> open(const std::string& path) { return FileEngine::open(path, {kBlock, kReadDepth, kWriteDepth}, io_); }
  /// Reads the range and expects version `version` of it.
  void expect_content(std::int64_t offset, std::int64_t bytes, int version) {
    const auto memory = make_plain_backing(bytes, "test");
    IoTicket ticket;
    engine_->post(ticket, {kRead, offset, memory->data(), bytes});
    ticket.wait();
    EXPECT_EQ(first_difference(memory->data(), offset, bytes, version), -1) << "of " << bytes << " at " << offset;
  }

  testing::TempDir dir_;
  FaultyIo io_;
  std::string path_;
  std::unique_ptr<Backing> memory_ = make_plain_backing(kFileBytes, "test");
  std::byte* data_ = memory_->data();
  std::unique_ptr<FileEngine> engine_;
};
TYPED_TEST_SUITE_P(FileEngineContract);

TYPED_TEST_P(FileEngineContract, MovesWhatWasPosted) {
  const std::int64_t written = 2 * kMiB + 12 * kKiB, at = 512 * kKiB + 4 * kKiB;  // neither in whole blocks
  fill(this->data_, at, written, 1);
  IoTicket ticket;
  this->engine_->post(ticket, {kWrite, at, this->data_, written});
  ticket.wait();
  this->expect_content(0, at, 0);
  this->expect_content(at, written, 1);
  this->expect_content(at + written, kFileBytes - at - written, 0);
  EXPECT_EQ(this->engine_->bytes_written(), written);
  EXPECT_EQ(this->engine_->bytes_read(), kFileBytes);
}

TYPED_TEST_P(FileEngineContract, ATicketWithoutTransfersIsComplete) {
  IoTicket ticket;
  EXPECT_TRUE(ticket.is_complete());
  ticket.wait();
}

TYPED_TEST_P(FileEngineContract, PostingDoesNotWait) {
  this->io_.hold(kRead);
  IoTicket ticket;
  this->engine_->post(ticket, {kRead, 0, this->data_, kFileBytes});
  nap(20);
  EXPECT_FALSE(ticket.is_complete());
  this->io_.release(kRead);
  while (!ticket.is_complete()) nap(1);
  ticket.wait();
  EXPECT_EQ(first_difference(this->data_, 0, kFileBytes, 0), -1);
}

TYPED_TEST_P(FileEngineContract, ATicketCollectsTransfersOfSeveralEngines) {
  const std::string other_path = this->dir_.write("other", std::string(static_cast<std::size_t>(kMiB), 'x'));
  const auto other = this->open(other_path);
  IoTicket ticket;
  for (int i = 0; i < 8; ++i) {
    this->engine_->post(ticket, {kRead, i * 2 * kBlock, this->data_ + i * 2 * kBlock, 2 * kBlock});
    other->post(ticket, {kRead, i * kBlock, this->data_ + 2 * kMiB + i * kBlock, kBlock});
  }
  ticket.wait();
  EXPECT_TRUE(ticket.is_complete());
  EXPECT_EQ(first_difference(this->data_, 0, 16 * kBlock, 0), -1);
  for (std::int64_t i = 0; i < 8 * kBlock; ++i) ASSERT_EQ(this->data_[2 * kMiB + i], std::byte{'x'}) << i;
}

TYPED_TEST_P(FileEngineContract, TicketsEndEachForItself) {
  std::array<IoTicket, 16> tickets;
  constexpr std::int64_t kEach = kFileBytes / 16;
  for (int i = 0; i < 16; ++i)
    this->engine_->post(tickets[static_cast<std::size_t>(i)], {kRead, i * kEach, this->data_ + i * kEach, kEach});
  for (int i = 15; i >= 0; --i) {
    tickets[static_cast<std::size_t>(i)].wait();
    EXPECT_EQ(first_difference(this->data_ + i * kEach, i * kEach, kEach, 0), -1) << i;
  }
}

TYPED_TEST_P(FileEngineContract, ATicketOutlivesItsTransfers) {
  this->io_.hold(kRead);
  std::thread opener([&] {
    nap(20);
    this->io_.release(kRead);
  });
  {
    IoTicket ticket;
    this->engine_->post(ticket, {kRead, 0, this->data_, kMiB});
    IoTicket moved = std::move(ticket);
    ticket = std::move(moved);
  }
  EXPECT_EQ(first_difference(this->data_, 0, kMiB, 0), -1);
  opener.join();
}

TYPED_TEST_P(FileEngineContract, TheEngineWaitsForWhatWasPosted) {
  fill(this->data_, 0, kFileBytes, 3);
  IoTicket ticket;
  this->engine_->post(ticket, {kWrite, 0, this->data_, kFileBytes});
  this->engine_.reset();
  EXPECT_TRUE(ticket.is_complete());
  ticket.wait();
  this->engine_ = this->open(this->path_);
  this->expect_content(0, kFileBytes, 3);
}

TYPED_TEST_P(FileEngineContract, KeepsItsDepthInFlightAndNoMore) {
  fill(this->data_, 0, kFileBytes, 1);
  // Several transfers, so that refilling goes across their borders.
  IoTicket reads, writes;
  const auto target = make_plain_backing(kFileBytes / 2, "test");
  for (int i = 0; i < 8; ++i) {
    this->engine_->post(reads, {kRead, kFileBytes / 2 + i * 4 * kBlock, target->data() + i * 4 * kBlock, 4 * kBlock});
    this->engine_->post(writes, {kWrite, i * 4 * kBlock, this->data_ + i * 4 * kBlock, 4 * kBlock});
  }
  reads.wait();
  writes.wait();
  EXPECT_LE(this->io_.most_in_flight(kRead), kReadDepth);
  EXPECT_LE(this->io_.most_in_flight(kWrite), kWriteDepth);
  // Held, so that nothing comes back before all that may has started. An aio service submits all in one call, the other one block.
  this->io_.arm(nullptr);
  this->io_.hold(kRead);
  this->engine_->post(reads, {kRead, 0, target->data(), 32 * kBlock});
  this->io_.await_held(kRead, TypeParam::kService == FileEngine::Service::kAio ? 1 : kReadDepth);
  this->io_.release(kRead);
  reads.wait();
  EXPECT_EQ(this->io_.most_in_flight(kRead), kReadDepth);
  EXPECT_EQ(this->io_.requests(kRead), 32);
}

TYPED_TEST_P(FileEngineContract, OneDirectionDoesNotHoldTheOtherBack) {
  IoTicket writes, reads;
  fill(this->data_, 0, kMiB, 0);
  this->io_.hold(kWrite);
  this->engine_->post(writes, {kWrite, 0, this->data_, kMiB});
  this->engine_->post(reads, {kRead, 2 * kMiB, this->data_ + 2 * kMiB, 2 * kMiB});
  reads.wait();
  EXPECT_EQ(first_difference(this->data_ + 2 * kMiB, 2 * kMiB, 2 * kMiB, 0), -1);
  EXPECT_FALSE(writes.is_complete());
  this->io_.release(kWrite);
  writes.wait();
}

TYPED_TEST_P(FileEngineContract, RefusesWhatIsNotAligned) {
  IoTicket ticket;
  EXPECT_THROW(this->engine_->post(ticket, {kRead, 0, this->data_, 0}), LogicError);
  EXPECT_THROW(this->engine_->post(ticket, {kRead, -4096, this->data_, 4096}), LogicError);
  const IoAlignment alignment = this->engine_->alignment();
  if (alignment.transfer > 1) {
    EXPECT_THROW(this->engine_->post(ticket, {kRead, 1, this->data_, 4096}), LogicError);
    EXPECT_THROW(this->engine_->post(ticket, {kRead, 0, this->data_, 4096 + 1}), LogicError);
  }
  if (alignment.memory > 1) {
    EXPECT_THROW(this->engine_->post(ticket, {kRead, 0, this->data_ + 1, 4096}), LogicError);
  }
  EXPECT_TRUE(ticket.is_complete());
  EXPECT_EQ(this->engine_->block_bytes() % alignment.transfer, 0);
}

TYPED_TEST_P(FileEngineContract, TheEndOfTheFileIsAShortTransfer) {
  IoTicket ticket;
  this->engine_->post(ticket, {kRead, kFileBytes - kBlock, this->data_, 2 * kBlock});
  testing::expect_error<IoError>([&] { ticket.wait(); },
                                 {this->path_, cat("reading ", kBlock, " bytes at byte ", kFileBytes), "short transfer"});
  EXPECT_EQ(first_difference(this->data_, kFileBytes - kBlock, kBlock, 0), -1);
  ticket.wait();  // the failure has been told
}

TYPED_TEST_P(FileEngineContract, AShortTransferIsContinuedAtASector) {
  // Every third request moves less than asked for, by odd amounts; a request of one sector is left alone.
  const auto shorten = [](IoDirection, int index, std::int64_t bytes) { return index % 3 == 0 && bytes > 4096 ? bytes / 2 + 1000 : bytes; };
  this->io_.arm(shorten);
  fill(this->data_, 0, kFileBytes, 5);
  IoTicket ticket;
  this->engine_->post(ticket, {kWrite, 0, this->data_, kFileBytes});
  ticket.wait();
  EXPECT_GT(this->io_.requests(kWrite), kFileBytes / kBlock);
  this->io_.arm(nullptr);
  this->expect_content(0, kFileBytes, 5);
  this->io_.arm(shorten);
  this->expect_content(0, kFileBytes, 5);
  EXPECT_EQ(this->engine_->bytes_written(), kFileBytes);
  EXPECT_EQ(this->engine_->bytes_read(), 2 * kFileBytes);
}

TYPED_TEST_P(FileEngineContract, AgainAndInterruptedAreRepeated) {
  this->io_.arm([](IoDirection, int index, std::int64_t bytes) -> std::int64_t {
    if (index < 3 || index % 7 == 3) return -EAGAIN;
    return index % 5 == 4 ? -EINTR : bytes;
  });
  fill(this->data_, 0, kFileBytes, 6);
  IoTicket ticket;
  this->engine_->post(ticket, {kWrite, 0, this->data_, kFileBytes});
  ticket.wait();
  this->io_.arm(nullptr);
  this->expect_content(0, kFileBytes, 6);
}

TYPED_TEST_P(FileEngineContract, AFailureNamesItsPlaceAndLeavesTheRestAlone) {
  for (const int error : {EIO, ENOSPC}) {
    this->io_.arm([error](IoDirection direction, int index, std::int64_t bytes) -> std::int64_t {
      return direction == kWrite && index == 2 ? -error : bytes;
    });
    fill(this->data_, 0, kFileBytes, 7);
    IoTicket bad, good;
    this->io_.hold(kWrite);
    this->engine_->post(bad, {kWrite, 0, this->data_, 2 * kMiB});
    this->engine_->post(good, {kWrite, 2 * kMiB, this->data_ + 2 * kMiB, kMiB});
    this->io_.release(kWrite);
    try {
      bad.wait();
      ADD_FAILURE() << "no error";
    } catch (const IoError& failure) {
      EXPECT_EQ(failure.error_number, error);
      // Several threads may have started requests in another order than they were posted in.
      EXPECT_THAT(failure.what(), ::testing::HasSubstr(cat(this->path_, ": writing ", kBlock, " bytes at byte ")));
      EXPECT_THAT(failure.what(), ::testing::HasSubstr(std::strerror(error)));
    }
    good.wait();
    // Of the failed ticket at most what was in flight beside the failure has been tried: all of it was 32 blocks.
    EXPECT_LE(this->io_.requests(kWrite), 16 + 3 + 2 * kWriteDepth);
    bad.wait();  // told once
    this->io_.arm(nullptr);
    this->expect_content(2 * kMiB, kMiB, 7);
    this->engine_->post(bad, {kWrite, 0, this->data_, kMiB});  // and the ticket serves again
    bad.wait();
    this->expect_content(0, kMiB, 7);
  }
}

TYPED_TEST_P(FileEngineContract, TransfersThatMoveNothingEnd) {
  this->io_.arm(
      [](IoDirection direction, int, std::int64_t bytes) { return direction == kWrite ? std::min<std::int64_t>(bytes, 100) : bytes; });
  IoTicket ticket;
  this->engine_->post(ticket, {kWrite, 0, this->data_, kBlock});
  if (this->engine_->alignment().transfer == 1) return ticket.wait();  // 100 bytes are progress
  testing::expect_error<IoError>([&] { ticket.wait(); }, {this->path_, "writing", "short transfer"});
}

TYPED_TEST_P(FileEngineContract, ManyThreadsPostAtOnce) {
  constexpr int kThreads = 4;
  constexpr std::int64_t kEach = kFileBytes / kThreads;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::byte* mine = this->data_ + t * kEach;
      IoTicket ticket;
      for (int round = 1; round <= 5; ++round) {
        for (std::int64_t at = 0; at < kEach; at += kEach / 4) {
          fill(mine + at, t * kEach + at, kEach / 4, round);
          this->engine_->post(ticket, {kWrite, t * kEach + at, mine + at, kEach / 4});
        }
        ticket.wait();
        std::memset(mine, 0, static_cast<std::size_t>(kEach));
        this->engine_->post(ticket, {kRead, t * kEach, mine, kEach});
        ticket.wait();
        if (first_difference(mine, t * kEach, kEach, round) != -1) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

REGISTER_TYPED_TEST_SUITE_P(FileEngineContract, MovesWhatWasPosted, ATicketWithoutTransfersIsComplete, PostingDoesNotWait,
                            ATicketCollectsTransfersOfSeveralEngines, TicketsEndEachForItself, ATicketOutlivesItsTransfers,
                            TheEngineWaitsForWhatWasPosted, KeepsItsDepthInFlightAndNoMore, OneDirectionDoesNotHoldTheOtherBack,
                            RefusesWhatIsNotAligned, TheEndOfTheFileIsAShortTransfer, AShortTransferIsContinuedAtASector,
                            AgainAndInterruptedAreRepeated, AFailureNamesItsPlaceAndLeavesTheRestAlone, TransfersThatMoveNothingEnd,
                            ManyThreadsPostAtOnce);

}  // namespace sluice::memory::contract
