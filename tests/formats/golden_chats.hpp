#pragma once
// The chat templates of tests/golden/chat_templates with what transformers makes of them.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/input_file.hpp"
#include "formats/chat_template.hpp"

namespace sluice::formats {

inline const std::string kChatFolder = std::string(SLUICE_SOURCE_DIR) + "/tests/golden/chat_templates/";

inline const nlohmann::json& expected_chats() {
  static const nlohmann::json kExpected = nlohmann::json::parse(read_text(kChatFolder + "expected.json"));
  return kExpected;
}

inline std::vector<ChatMessage> messages_of(const nlohmann::json& chat) {
  std::vector<ChatMessage> messages;
  for (const nlohmann::json& each : chat) {
    ChatMessage& message = messages.emplace_back();
    for (const auto& [key, value] : each.items()) {
      (key == "role" ? message.role : key == "content" ? message.content : message.more[key]) = value.get<std::string>();
    }
  }
  return messages;
}

}  // namespace sluice::formats
