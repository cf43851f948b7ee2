// SPDX-License-Identifier: Apache-2.0
// Values that repeat: each is kept once, as far as an index of bounded size remembers it. Where
// they never repeat, that costs their size and no more. And an iterator for lists that put their
// elements together when they are read.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace collwire::nccl {

// `hash_of(value)` is found by its arguments.
template <typename T> class DistinctValues {
public:
    std::uint32_t put(const T &value) {
        if (values_.size() >= slots_.size() / 2 && slots_.size() < MOST_SLOTS)
            grow();
        std::uint32_t &slot = slot_of(value);
        if (slot == EMPTY || !(values_[slot] == value)) {
            slot = static_cast<std::uint32_t>(values_.size());
            values_.push_back(value);
        }
        return slot;
    }

    [[nodiscard]] const T &operator[](std::uint32_t place) const { return values_[place]; }
    [[nodiscard]] std::size_t size() const { return values_.size(); }

    void clear() {
        values_ = {};
        slots_ = {};
    }
    // Few more are expected.
    void shrink() {
        values_.shrink_to_fit();
        slots_ = {};
    }

private:
    static constexpr std::uint32_t EMPTY = UINT32_MAX;
    static constexpr std::size_t FEWEST_SLOTS = 16, MOST_SLOTS = 4096, LOOKED_AT = 4;

    // Where it is, or where it belongs.
    std::uint32_t &slot_of(const T &value) {
        const std::uint64_t hash = hash_of(value);
        const std::size_t mask = slots_.size() - 1;
        for (std::size_t i = 0; i < LOOKED_AT; ++i) {
            std::uint32_t &slot = slots_[(hash + i) & mask];
            if (slot == EMPTY || values_[slot] == value)
                return slot;
        }
        return slots_[hash & mask];
    }

    void grow() {
        std::size_t wanted = FEWEST_SLOTS;
        while (wanted < MOST_SLOTS && wanted / 2 <= values_.size())
            wanted *= 2;
        slots_.assign(wanted, EMPTY);
        for (std::uint32_t i = 0; i < values_.size(); ++i)
            slot_of(values_[i]) = i;
    }

    std::vector<T> values_;
    std::vector<std::uint32_t> slots_; // a power of 2
};

// Reads elements of a list by value.
template <typename List> class ValueIterator {
public:
    using iterator_concept = std::random_access_iterator_tag;
    using iterator_category = std::random_access_iterator_tag;
    using value_type = typename List::value_type;
    using difference_type = std::ptrdiff_t;
    using reference = value_type;
    class HeldElement {
    public:
        explicit HeldElement(const value_type &value) : value_(value) {}
        const value_type *operator->() const { return &value_; }

    private:
        value_type value_;
    };
    using pointer = HeldElement;

    ValueIterator() = default;
    ValueIterator(const List &list, std::size_t place)
        : list_(&list), place_(static_cast<difference_type>(place)) {}

    reference operator*() const { return (*list_)[static_cast<std::size_t>(place_)]; }
    pointer operator->() const { return pointer(**this); }
    reference operator[](difference_type n) const { return *(*this + n); }

    ValueIterator &operator+=(difference_type n) {
        place_ += n;
        return *this;
    }
    ValueIterator &operator-=(difference_type n) { return *this += -n; }
    ValueIterator &operator++() { return *this += 1; }
    ValueIterator &operator--() { return *this -= 1; }
    ValueIterator operator++(int) {
        const ValueIterator before = *this;
        ++*this;
        return before;
    }
    ValueIterator operator--(int) {
        const ValueIterator before = *this;
        --*this;
        return before;
    }
    friend ValueIterator operator+(ValueIterator at, difference_type n) { return at += n; }
    friend ValueIterator operator+(difference_type n, ValueIterator at) { return at += n; }
    friend ValueIterator operator-(ValueIterator at, difference_type n) { return at -= n; }
    friend difference_type operator-(const ValueIterator &a, const ValueIterator &b) {
        return a.place_ - b.place_;
    }
    friend bool operator==(const ValueIterator &a, const ValueIterator &b) {
        return a.place_ == b.place_;
    }
    friend auto operator<=>(const ValueIterator &a, const ValueIterator &b) {
        return a.place_ <=> b.place_;
    }

private:
    const List *list_ = nullptr;
    difference_type place_ = 0;
};

} // namespace collwire::nccl
