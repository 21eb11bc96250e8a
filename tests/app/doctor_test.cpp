#include "app/doctor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.hpp"
#include "base/units.hpp"
#include "support/expect_error.hpp"

namespace sluice::app {
namespace {

using testing::expect_error;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(EnvironmentTest, IsASnapshot) {
  ASSERT_EQ(::setenv("SLUICE_TEST_VARIABLE", "a=b", 1), 0);
  const Environment environment = read_environment();
  ASSERT_EQ(::unsetenv("SLUICE_TEST_VARIABLE"), 0);
  EXPECT_EQ(value_of(environment, "SLUICE_TEST_VARIABLE"), "a=b");
  EXPECT_EQ(value_of(environment, "SLUICE_TEST_OTHER"), "");
}

void expect_refused(const Environment& environment, const std::vector<std::string>& pieces) {
  expect_error<RequestError>([&] { refuse_wrong_launch(environment, 1); }, pieces);
}

TEST(WrongLaunch, SrunWithoutMpi) {
  expect_refused({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_NTASKS", "4"}},
                 {"SLURM_STEP_NUM_TASKS is 4", "MPI counts 1", "srun --mpi=pmix", "mpirun -n 4"});
  expect_refused({{"SLURM_STEPID", "2"}, {"SLURM_NTASKS", "3"}}, {"SLURM_NTASKS is 3"});
  expect_refused({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}}, {"SLURM_NTASKS is 2"});
}

TEST(WrongLaunch, DeepSpeedsLocalLauncherAndOtherMpis) {
  expect_refused({{"WORLD_SIZE", "2"}, {"RANK", "0"}}, {"WORLD_SIZE is 2", "--force_multi", "mpirun -n 2", "unset it"});
  expect_refused({{"PMI_SIZE", "2"}}, {"PMI_SIZE is 2", "another MPI"});
  expect_refused({{"OMPI_COMM_WORLD_SIZE", "8"}}, {"OMPI_COMM_WORLD_SIZE is 8"});
  expect_refused({{"FLUX_JOB_SIZE", "2"}, {"FLUX_TASK_RANK", "0"}}, {"FLUX_JOB_SIZE is 2", "pmi=pmix"});
}

TEST(WrongLaunch, AnAllocationIsNoLaunch) {
  const auto fine = [](const Environment& environment, int size = 1) { EXPECT_THAT(find_wrong_launch(environment, size), IsEmpty()); };
  fine({});
  fine({{"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}});                                  // salloc's shell
  fine({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}});                                  // a batch script
  fine({{"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "4294967290"}});                        // an interactive step
  fine({{"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});  // srun -n 1 in a larger job
  fine({{"WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
  fine({{"WORLD_SIZE", "many"}});
  fine({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"WORLD_SIZE", "4"}}, 4);  // MPI knows them all
}

DoctorFacts good() {
  DoctorFacts facts;
  facts.libraries = {{"MPI", "Open MPI v4.1.4"}};
  facts.processor = "CPU";
  facts.isa = "avx2";
  facts.cores = facts.cores_online = 8;
  facts.memory_total_bytes = 32 * kGiB;
  facts.memory_available_bytes = 16 * kGiB;
  facts.memory_limit_source = "node";
  facts.shm_total_bytes = facts.shm_free_bytes = 16 * kGiB;
  facts.folder = "/here";
  facts.folder_is_writable = true;
  facts.folder_free_bytes = 100 * kGiB;
  facts.temporary_folder = "/tmp";
  facts.temporary_free_bytes = 10 * kGiB;
  return facts;
}

Finding finding(const DoctorFacts& facts, const std::string& subject, const Environment& environment = {}) {
  for (const Finding& each : diagnose(facts, environment)) {
    if (each.subject == subject) return each;
  }
  ADD_FAILURE() << "no finding about " << subject;
  return {};
}

TEST(Doctor, AGoodMachineIsFine) {
  const std::vector<Finding> findings = diagnose(good(), {});
  EXPECT_EQ(worst_of(findings), Severity::kFine);
  for (const Finding& each : findings) EXPECT_EQ(each.remedy, "") << each.subject;
  EXPECT_THAT(describe(findings), HasSubstr("ok       MPI: Open MPI v4.1.4\n"));
  EXPECT_THAT(describe(findings), HasSubstr("ok       memory: 16.0 GiB of 32.0 GiB free, limited by node\n"));
}

TEST(Doctor, EachFindingHasItsRemedy) {
  const auto expect = [](const DoctorFacts& facts, const std::string& subject, Severity severity, const std::string& found,
                         const std::string& remedy, const Environment& environment = {}) {
    const Finding each = finding(facts, subject, environment);
    EXPECT_EQ(each.severity, severity) << subject;
    EXPECT_THAT(each.found, HasSubstr(found));
    EXPECT_THAT(each.remedy, HasSubstr(remedy));
  };
  DoctorFacts facts = good();
  facts.libraries[0].second = "";
  expect(facts, "MPI", Severity::kProblem, "not found", "install MPI");
  facts = good();
  facts.isa = "baseline";
  expect(facts, "processor", Severity::kWarning, "baseline", "AVX2");
  facts = good();
  facts.cores = 1;
  expect(facts, "cores", Severity::kWarning, "1 of 8 cores", "--bind-to none");
  expect(good(), "cores", Severity::kWarning, "OMP_NUM_THREADS is 16", "--threads 8", {{"OMP_NUM_THREADS", "16"}});
  expect(good(), "cores", Severity::kWarning, "OMP_THREAD_LIMIT is 2", "unset it", {{"OMP_THREAD_LIMIT", "2"}});
  facts = good();
  facts.memory_available_bytes = kGiB;
  facts.memory_limit_source = "/sys/fs/cgroup/memory.max";
  expect(facts, "memory", Severity::kWarning, "limited by /sys/fs/cgroup/memory.max", "raise the container's limit");
  facts = good();
  facts.shm_free_bytes = 64 * kMiB;
  expect(facts, "/dev/shm", Severity::kWarning, "64.0 MiB", "--shm-size");
  facts = good();
  facts.folder_free_bytes = kGiB;
  expect(facts, "disk", Severity::kWarning, "1.00 GiB free in /here", "--output");
  facts.folder_is_writable = false;
  expect(facts, "disk", Severity::kProblem, "can't be written", "--output");
  facts = good();
  facts.temporary_free_bytes = kMiB;
  expect(facts, "temporary files", Severity::kWarning, "/tmp", "TMPDIR");
  expect(good(), "launch", Severity::kProblem, "WORLD_SIZE is 2", "mpirun -n 2", {{"WORLD_SIZE", "2"}});
  expect(good(), "network", Severity::kWarning, "UCX_TLS is tcp", "unset it", {{"UCX_TLS", "tcp"}});
}

TEST(Doctor, UnknownFactsAreNotAlarming) {
  DoctorFacts facts = good();
  facts.shm_free_bytes = facts.shm_total_bytes = -1;
  EXPECT_EQ(finding(facts, "/dev/shm").severity, Severity::kFine);
  EXPECT_THAT(finding(facts, "/dev/shm").found, HasSubstr("unknown"));
}

TEST(Doctor, ReadsThisMachine) {
  const DoctorFacts facts = read_doctor_facts({{"TMPDIR", "/tmp"}, {"OMPI_COMM_WORLD_SIZE", "3"}}, {{"MPI", "x"}});
  EXPECT_GE(facts.cores, 1);
  EXPECT_GE(facts.cores_online, facts.cores);
  EXPECT_GT(facts.memory_available_bytes, 0);
  EXPECT_LE(facts.memory_available_bytes, facts.memory_total_bytes);
  EXPECT_GT(facts.folder_free_bytes, 0);
  EXPECT_EQ(facts.temporary_folder, "/tmp");
  EXPECT_EQ(facts.mpi_size, 3);
  EXPECT_EQ(read_doctor_facts({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}}, {}).mpi_size, 2);
  EXPECT_EQ(read_doctor_facts({}, {}).mpi_size, 1);
}

}  // namespace
}  // namespace sluice::app
