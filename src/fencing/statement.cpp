#include <lastdoor/fencing/statement.hpp>

namespace lastdoor {

statement& statement::in_schema(std::string name) & {
  schema_ = std::move(name);
  return *this;
}

statement& statement::key(std::string column, value v) & {
  matches_.push_back({std::move(column), {}});
  matches_.back().any_of.push_back(std::move(v));
  return *this;
}

statement& statement::keys(std::string column, std::vector<value> any_of) & {
  matches_.push_back({std::move(column), std::move(any_of)});
  return *this;
}

statement& statement::every_row() & {
  every_row_ = true;
  return *this;
}

statement& statement::set(std::string column, value v) & {
  assignments_.push_back({std::move(column), change::set, std::move(v)});
  return *this;
}

statement& statement::add(std::string column, value v) & {
  assignments_.push_back({std::move(column), change::add, std::move(v)});
  return *this;
}

statement& statement::subtract(std::string column, value v) & {
  assignments_.push_back({std::move(column), change::subtract, std::move(v)});
  return *this;
}

statement& statement::require(std::string column, condition c) & {
  requirements_.push_back({std::move(column), std::move(c)});
  return *this;
}

statement& statement::returning(std::vector<std::string> columns) & {
  returned_ = std::move(columns);
  return *this;
}

}  // namespace lastdoor
