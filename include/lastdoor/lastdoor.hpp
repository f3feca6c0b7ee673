// lastdoor.hpp: the whole core in one include. Back ends have headers of
// their own: <lastdoor/locks/sqlite.hpp>, <lastdoor/stores/sqlite.hpp>.
#pragma once

#include <lastdoor/clock.hpp>
#include <lastdoor/errors.hpp>
#include <lastdoor/fencing/outcome.hpp>
#include <lastdoor/fencing/rule.hpp>
#include <lastdoor/fencing/statement.hpp>
#include <lastdoor/fencing/value.hpp>
#include <lastdoor/gateway.hpp>
#include <lastdoor/grant.hpp>
#include <lastdoor/lease.hpp>
#include <lastdoor/lock_backend.hpp>
#include <lastdoor/lock_service.hpp>
#include <lastdoor/observer.hpp>
#include <lastdoor/repository.hpp>
#include <lastdoor/stores/store.hpp>
#include <lastdoor/token.hpp>
#include <lastdoor/version.hpp>
