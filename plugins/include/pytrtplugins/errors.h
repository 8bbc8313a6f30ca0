// Exceptions that a plugin throws; Python sees them as the classes of the same name in pytrtplugins.errors.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pytrtplugins __attribute__((visibility("default"))) {

enum class ErrorKind { kPlugin, kDims, kField, kRegistry, kSerialization };

// What the message speaks of, for programs: {"expected", 4}.
using Facts = std::vector<std::pair<std::string, int64_t>>;

class Error : public std::runtime_error {
public:
    Error(ErrorKind kind, std::string const& message, Facts facts = {})
        : std::runtime_error(message), mKind(kind), mFacts(std::move(facts)) {}

    ErrorKind kind() const noexcept { return mKind; }
    Facts const& facts() const noexcept { return mFacts; }

    // The exception of another language that this one stands for; the bridge sets it and hands it back there.
    std::shared_ptr<void> const& cause() const noexcept { return mCause; }
    void setCause(std::shared_ptr<void> cause) { mCause = std::move(cause); }

private:
    ErrorKind mKind;
    Facts mFacts;
    std::shared_ptr<void> mCause;
};

// A plugin is declared or used wrongly.
class PluginError : public Error {
public:
    explicit PluginError(std::string const& message, Facts facts = {})
        : Error(ErrorKind::kPlugin, message, std::move(facts)) {}
};

// A shape that the plugin does not accept.
class DimsError : public Error {
public:
    explicit DimsError(std::string const& message, Facts facts = {})
        : Error(ErrorKind::kDims, message, std::move(facts)) {}
};

// A field with a wrong name, type or value.
class FieldError : public Error {
public:
    explicit FieldError(std::string const& message, Facts facts = {})
        : Error(ErrorKind::kField, message, std::move(facts)) {}
};

// A plugin key that nobody registered.
class RegistryError : public Error {
public:
    explicit RegistryError(std::string const& message, Facts facts = {})
        : Error(ErrorKind::kRegistry, message, std::move(facts)) {}
};

// Bytes that are not one whole, undamaged serialized plugin.
class SerializationError : public Error {
public:
    explicit SerializationError(std::string const& message, Facts facts = {})
        : Error(ErrorKind::kSerialization, message, std::move(facts)) {}
};

}  // namespace pytrtplugins
