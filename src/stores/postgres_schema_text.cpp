#include "stores/postgres_schema_text.hpp"

#include <fmt/format.h>

namespace lastdoor::postgres {

namespace {

using postgres_driver::arguments;
using postgres_driver::connection;
using postgres_driver::effect;

// Two columns: the name of an object and its description. Who owns what and
// who was granted what is for the people who run the database to decide.
constexpr std::string_view describe = R"(
WITH mine AS (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = $1),
     rel AS (SELECT c.* FROM pg_catalog.pg_class c, mine
             WHERE c.relnamespace = mine.oid)
SELECT pg_catalog.format('relation %s', relname),
       pg_catalog.format('kind %s persistence %s row security %s/%s options %s',
                         relkind, relpersistence, relrowsecurity,
                         relforcerowsecurity, reloptions)
  FROM rel WHERE relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
UNION ALL
SELECT pg_catalog.format('column %s.%s', r.relname, a.attname),
       pg_catalog.format('%s not null %s collation %s identity %s '
                         'generated %s default %s',
                         pg_catalog.format_type(a.atttypid, a.atttypmod),
                         a.attnotnull, a.attcollation::regcollation,
                         a.attidentity, a.attgenerated,
                         pg_catalog.pg_get_expr(d.adbin, d.adrelid))
  FROM rel r
  JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid
  LEFT JOIN pg_catalog.pg_attrdef d
    ON d.adrelid = r.oid AND d.adnum = a.attnum
 WHERE r.relkind IN ('r', 'p', 'v', 'm', 'f')
   AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT pg_catalog.format('constraint %s.%s', r.relname, c.conname),
       pg_catalog.format('%s validated %s',
                         pg_catalog.pg_get_constraintdef(c.oid),
                         c.convalidated)
  FROM rel r JOIN pg_catalog.pg_constraint c ON c.conrelid = r.oid
UNION ALL
SELECT pg_catalog.format('index %s', r.relname),
       pg_catalog.format('%s valid %s', pg_catalog.pg_get_indexdef(r.oid),
                         i.indisvalid)
  FROM rel r JOIN pg_catalog.pg_index i ON i.indexrelid = r.oid
UNION ALL
SELECT pg_catalog.format('sequence %s', r.relname),
       pg_catalog.format('%s from %s to %s by %s start %s cache %s cycle %s',
                         pg_catalog.format_type(s.seqtypid, NULL), s.seqmin,
                         s.seqmax, s.seqincrement, s.seqstart, s.seqcache,
                         s.seqcycle)
  FROM rel r JOIN pg_catalog.pg_sequence s ON s.seqrelid = r.oid
UNION ALL
SELECT pg_catalog.format('trigger %s.%s', r.relname, t.tgname),
       pg_catalog.format('%s enabled %s', pg_catalog.pg_get_triggerdef(t.oid),
                         t.tgenabled)
  FROM rel r JOIN pg_catalog.pg_trigger t ON t.tgrelid = r.oid
 WHERE NOT t.tgisinternal
UNION ALL
SELECT pg_catalog.format('rule %s.%s', r.relname, w.rulename),
       pg_catalog.pg_get_ruledef(w.oid)
  FROM rel r JOIN pg_catalog.pg_rewrite w ON w.ev_class = r.oid
UNION ALL
SELECT pg_catalog.format('function %s(%s)', p.proname,
                         pg_catalog.pg_get_function_identity_arguments(p.oid)),
       CASE WHEN p.prokind IN ('f', 'p')
            THEN pg_catalog.pg_get_functiondef(p.oid) ELSE p.prokind::text END
  FROM pg_catalog.pg_proc p, mine WHERE p.pronamespace = mine.oid
UNION ALL
SELECT pg_catalog.format('type %s', t.typname), t.typtype::text
  FROM pg_catalog.pg_type t, mine
 WHERE t.typnamespace = mine.oid AND t.typelem = 0 AND t.typrelid = 0
)";

// The description of an object in a renamed schema names it by its new name.
std::string with_usual_name(std::string text, std::string_view schema) {
  if (schema == "lastdoor") {
    return text;
  }
  for (auto at = text.find(schema); at != std::string::npos;
       at = text.find(schema, at)) {
    text.replace(at, schema.size(), "lastdoor");
  }
  return text;
}

}  // namespace

result<schema_text> read_schema(connection& db, std::string_view schema,
                                time_point deadline) {
  const auto all =
      db.run({describe, "reading the schema", effect::reads, deadline},
             arguments{}.add(schema));
  if (!all) {
    return all.error();
  }
  schema_text text;
  for (int i = 0; i < all->rows(); ++i) {
    text.emplace(with_usual_name(std::string{all->text(i, 0)}, schema),
                 with_usual_name(std::string{all->text(i, 1)}, schema));
  }
  return text;
}

std::vector<std::string> differences(const schema_text& want,
                                     const schema_text& have) {
  std::vector<std::string> found;
  for (const auto& [name, text] : want) {
    const auto it = have.find(name);
    if (it == have.end()) {
      found.push_back(fmt::format("{} is missing", name));
    } else if (it->second != text) {
      found.push_back(
          fmt::format("{} is '{}', not '{}'", name, it->second, text));
    }
  }
  for (const auto& [name, text] : have) {
    if (!want.contains(name)) {
      found.push_back(fmt::format("{} is not lastdoor's", name));
    }
  }
  return found;
}

}  // namespace lastdoor::postgres
