// The lock contract on the smallest service that can keep it.
#include <lastdoor/testing/lock_contract.hpp>

#include "support/reference_locks.hpp"

using lastdoor::testing::reference_locks;

LASTDOOR_LOCK_CONTRACT(reference, reference_locks);
LASTDOOR_LOCK_CONTRACT_REPLIES(reference, reference_locks);
