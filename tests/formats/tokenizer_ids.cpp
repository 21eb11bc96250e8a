// Encodes texts for scripts that compare the ids with another library's: tokenizer_ids DIRECTORY. Standard input holds texts, each
// behind its length (uint32, little endian); for each the output has the number of its ids, the ids (int32), and twice a text behind its
// length: the ids decoded, with special tokens and without.

#include <bit>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "formats/tokenizer.hpp"

namespace {

static_assert(std::endian::native == std::endian::little);

void write(const void* bytes, std::size_t count) {
  std::fwrite(bytes, 1, count, stdout);
}
void write_text(const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  write(&size, sizeof size);
  write(text.data(), text.size());
}

int run(const std::string& directory) {
  const auto tokenizer = sluice::formats::open_tokenizer(directory);
  if (!tokenizer) {
    std::fprintf(stderr, "%s: no tokenizer\n", directory.c_str());
    return 2;
  }
  std::vector<std::int32_t> ids;
  for (std::uint32_t size = 0; std::fread(&size, sizeof size, 1, stdin) == 1;) {
    std::string text(size, '\0');
    if (size > 0 && std::fread(text.data(), 1, size, stdin) != size) return 2;
    ids.clear();
    tokenizer->encode(text, ids);
    const auto count = static_cast<std::uint32_t>(ids.size());
    write(&count, sizeof count);
    write(ids.data(), ids.size() * sizeof(std::int32_t));
    write_text(tokenizer->decode(ids, false));
    write_text(tokenizer->decode(ids, true));
  }
  return std::fflush(stdout) == 0 ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
