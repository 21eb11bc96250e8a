#include "base/owner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.hpp"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(Owner, ReadsBackWhatItWrote) {
  const Owner owner = Owner::this_process("node1", "job \"7\"");
  EXPECT_EQ(owner.pid, ::getpid());
  EXPECT_GT(owner.started, 0);
  const std::optional<Owner> read = Owner::parse(owner.to_text());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->host, "node1");
  EXPECT_EQ(read->pid, owner.pid);
  EXPECT_EQ(read->started, owner.started);
  EXPECT_EQ(read->since, owner.since);
  EXPECT_EQ(read->label, "job \"7\"");
  EXPECT_THAT(read->describe(), HasSubstr(cat("process ", ::getpid(), " on host node1 (job \"7\") since 2")));
}

TEST(Owner, NothingElseIsAnOwner) {
  for (const char* text : {"", "{", "[]", "{\"host\": 3}", "{\"host\": \"a\", \"pid\": \"x\", \"since\": 1, \"label\": \"\"}"}) {
    EXPECT_FALSE(Owner::parse(text)) << text;
  }
  EXPECT_TRUE(Owner::parse(Owner::this_process("\xff\xfe", "").to_text())) << "any host name can be written";
}

TEST(Owner, RunsUntilItEnds) {
  Owner owner = Owner::this_process("node1", "");
  EXPECT_TRUE(owner.is_running());
  owner.started += 1;  // an earlier or later process of the same number
  EXPECT_FALSE(owner.is_running());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  owner = {"node1", child, 0, 0, ""};
  EXPECT_FALSE(owner.is_running());
  owner.pid = 0;
  EXPECT_FALSE(owner.is_running());
  owner.pid = -1;
  EXPECT_FALSE(owner.is_running());
}

}  // namespace
}  // namespace sluice
