/* redlock.pml: the token rule of Redlock with fencing tokens.
 *
 * N independent nodes, each with a counter, a lock and a marker ("admitted");
 * A acquisitions, each begun at any moment, each with an owner value of its
 * own. What may go wrong, at any moment and in any order:
 *   - a request takes effect late, also after its client gave up, or never;
 *   - an answer arrives late or never, although the request took effect;
 *   - a lock key expires, also under a holder that believes it holds: no
 *     clock is assumed to be right;
 *   - a client gives up, or crashes (which is giving up without a word);
 *   - a node loses lock, counter and marker (LOSSES times).
 *
 * Properties
 *   G1  no two grants carry the same token;
 *   G2  if a grant was returned before an acquisition began, the
 *       acquisition's token is higher.
 *
 * Two reductions that lose no behaviour: which answers have arrived is chosen
 * when the client decides (an answer that was lost is one that is not chosen),
 * and an acknowledged raise is known at once (a client that learns of it later
 * can only grant later).
 *
 * Mutants (-D...), each of which must fail:
 *   NO_WRITE_BACK  grant although fewer than Q nodes persist t
 *   TOKEN_MAX      token = maximum of the answers, no write-back
 *   PLAIN_T        token = t without the index of the node
 *   NO_QUARANTINE  a node that forgot votes at once
 *   NO_WAIT        re-admission does not wait for acquisitions under way
 *   READ_ONE_LESS  re-admission reads N-Q nodes instead of N-Q+1
 */

#ifndef N
#define N 3
#endif
#ifndef A
#define A 2
#endif
#ifndef LOSSES
#define LOSSES 0
#endif
#ifndef START /* counters begin uneven: anything up to START */
#define START 1
#endif

#define Q (N / 2 + 1)
#define AT(a, n) ((a) * N + (n))

#ifdef READ_ONE_LESS
#define READS (N - Q)
#else
#define READS (N - Q + 1)
#endif

byte counter[N];
byte owner[N]; /* 0: free, else acquisition + 1 */
bool admitted[N];

byte answer[A * N];   /* 0: none; of an acquisition under way */
bool handled[A * N];  /* the request took effect, or was refused */
bool persists[A * N]; /* phase 2: the node stands at t or above */
byte t_of[A];         /* phase 2: the t that was chosen; 0: phase 1 */
byte i_of[A];         /* phase 2: the node that answered exactly t */
byte floor[A];        /* highest token returned before it began */
byte token[A];        /* what it was granted */
bool begun[A];
bool over[A];
byte highest;

/* The node's script: one atomic step. */
inline handle(a, n) {
  handled[AT(a, n)] = true;
  if
  :: admitted[n] && owner[n] == 0 ->
     owner[n] = a + 1;
     counter[n]++;
     if
     :: !over[a] && t_of[a] == 0 -> answer[AT(a, n)] = counter[n]
     :: else
     fi
  :: else
  fi
}

/* The write-back of phase 2 on one node. */
inline raise(a, n) {
  if
  :: counter[n] < t_of[a] -> counter[n] = t_of[a]
  :: else
  fi;
  persists[AT(a, n)] = true
}

inline finish(a) {
  over[a] = true;
  t_of[a] = 0; i_of[a] = 0; floor[a] = 0;
  k = 0;
  do
  :: k < N -> answer[AT(a, k)] = 0; persists[AT(a, k)] = false; k++
  :: else -> break
  od;
  k = 0
}

inline grant(a, t, i) {
#ifdef PLAIN_T
  token[a] = 16 * (t);
#else
  token[a] = 16 * (t) + (i);
#endif
  assert(token[a] > floor[a]); /* G2 */
  k = 0;
  do
  :: k < A ->
     assert(k == a || token[k] != token[a]); /* G1 */
     k++
  :: else -> break
  od;
  if
  :: token[a] > highest -> highest = token[a]
  :: else
  fi;
  finish(a)
}

/* The client looks at the answers that have arrived and decides. */
inline decide(a) {
  /* chosen: bit k: the answer of node k has arrived */
  k = 0; have = 0; chosen = 0;
  do
  :: k < N ->
     if
     :: answer[AT(a, k)] > 0 -> chosen = chosen | (1 << k); have++
     :: true
     fi;
     k++
  :: else -> break
  od;
  if
  :: have >= Q ->
     d_step {
       t = 0;
#ifdef TOKEN_MAX
       k = 0;
       do
       :: k < N ->
          if
          :: (chosen & (1 << k)) && answer[AT(a, k)] > t ->
             t = answer[AT(a, k)]
          :: else
          fi;
          k++
       :: else -> break
       od;
#else
       /* the smallest value that at least Q answers do not exceed */
       do
       :: t++;
          have = 0; k = 0;
          do
          :: k < N ->
             if
             :: (chosen & (1 << k)) && answer[AT(a, k)] <= t -> have++
             :: else
             fi;
             k++
          :: else -> break
          od;
          if
          :: have >= Q -> break
          :: else
          fi
       od;
#endif
       /* where it stands already, and a node that answered exactly it */
       have = 0; k = 0; i = 0;
       do
       :: k < N ->
          if
          :: (chosen & (1 << k)) && answer[AT(a, k)] >= t ->
             have++;
             persists[AT(a, k)] = true;
             if
             :: answer[AT(a, k)] == t -> i = k
             :: else
             fi
          :: else
          fi;
          k++
       :: else -> break
       od;
#if defined(NO_WRITE_BACK) || defined(TOKEN_MAX)
       have = Q;
#endif
       if
       :: have >= Q -> grant(a, t, i)
       :: else ->
          t_of[a] = t; i_of[a] = i; k = 0;
          do
          :: k < N ->
             /* only the nodes whose answers were counted are raised */
             if
             :: chosen & (1 << k) -> skip
             :: else -> answer[AT(a, k)] = 0
             fi;
             k++
          :: else -> break
          od
       fi
     }
  :: else
  fi;
  d_step { k = 0; have = 0; chosen = 0; t = 0; i = 0 }
}

/* Phase 2 is complete when Q nodes stand at t or above. */
inline conclude(a) {
  d_step {
    have = 0; k = 0;
    do
    :: k < N ->
       if
       :: persists[AT(a, k)] -> have++
       :: else
       fi;
       k++
    :: else -> break
    od;
    if
    :: have >= Q -> grant(a, t_of[a], i_of[a])
    :: else
    fi;
    have = 0; k = 0
  }
}

#define NODE(a, n)                                                       \
  :: atomic { begun[a] && !handled[AT(a, n)] -> handle(a, n) }           \
  :: atomic {                                                            \
       t_of[a] > 0 && answer[AT(a, n)] > 0 && !persists[AT(a, n)] &&     \
           admitted[n] && owner[n] == a + 1 -> raise(a, n)               \
     }

#if N == 1
#define NODES(a) NODE(a, 0)
#define EXPIRE   EXP(0)
#elif N == 3
#define NODES(a) NODE(a, 0) NODE(a, 1) NODE(a, 2)
#define EXPIRE   EXP(0) EXP(1) EXP(2)
#elif N == 4
#define NODES(a) NODE(a, 0) NODE(a, 1) NODE(a, 2) NODE(a, 3)
#define EXPIRE   EXP(0) EXP(1) EXP(2) EXP(3)
#else
#define NODES(a) NODE(a, 0) NODE(a, 1) NODE(a, 2) NODE(a, 3) NODE(a, 4)
#define EXPIRE   EXP(0) EXP(1) EXP(2) EXP(3) EXP(4)
#endif

#define EXP(n) :: atomic { owner[n] != 0 -> owner[n] = 0 }

/* Acquisitions are interchangeable: they begin in the order of their number,
 * which leaves out permutations only. */
#define CLIENT(a, before)                                                \
  :: atomic { !begun[a] && (before) ->                                   \
              begun[a] = true; floor[a] = highest }                      \
  :: atomic { begun[a] && !over[a] && t_of[a] == 0 -> decide(a) }        \
  :: atomic { t_of[a] > 0 -> conclude(a) }                               \
  :: atomic { begun[a] && !over[a] -> d_step { finish(a) } }             \
  NODES(a)

active proctype world() {
  byte k, have, chosen, t, i;

  atomic {
    do
    :: k < N ->
       admitted[k] = true;
       select(t : 0 .. START);
       counter[k] = t;
       k++
    :: else -> break
    od;
    k = 0; t = 0
  }
end:
  do
  CLIENT(0, true)
#if A > 1
  CLIENT(1, begun[0])
#endif
#if A > 2
  CLIENT(2, begun[1])
#endif
#if A > 3
  CLIENT(3, begun[2])
#endif
  EXPIRE
  od
}

#if LOSSES > 0
/* One loss of memory after another; each node re-admitted by the rule. */
active proctype forgetting() {
  byte losses = LOSSES;
  byte n, k, m, reads;
  byte waits; /* bit a: acquisition a was under way at the restart */
  byte seen;  /* bit k: node k was read */

end:
  do
  :: atomic {
       losses > 0 ->
       losses--;
       select(n : 0 .. N - 1);
       counter[n] = 0; owner[n] = 0;
       k = 0;
       do
       :: k < A ->
          if
          :: begun[k] && !over[k] -> waits = waits | (1 << k)
          :: else
          fi;
          k++
       :: else -> break
       od;
       k = 0;
#ifdef NO_QUARANTINE
       waits = 0; n = 0;
#else
       admitted[n] = false;
#endif
     }
#ifndef NO_QUARANTINE
#ifndef NO_WAIT
     /* one max TTL: everything that counted the old memory is over */
     do
     :: atomic { k < A && (!(waits & (1 << k)) || over[k]) -> k++ }
     :: atomic { k == A -> k = 0; break }
     od;
#endif
     do
     :: atomic {
          reads < READS ->
          select(k : 0 .. N - 1);
          if
          :: admitted[k] && !(seen & (1 << k)) ->
             seen = seen | (1 << k);
             reads++;
             if
             :: counter[k] > m -> m = counter[k]
             :: else
             fi
          :: else
          fi;
          k = 0
        }
     :: atomic {
          reads == READS ->
          if
          :: counter[n] < m -> counter[n] = m
          :: else
          fi;
          admitted[n] = true;
          m = 0; reads = 0; seen = 0; n = 0; waits = 0;
          break
        }
     od
#endif
  od
}
#endif
