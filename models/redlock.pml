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
 *       acquisition's t is higher, and so is its token.
 *
 * What is left out loses no behaviour:
 *   - Which answers have arrived is chosen when the client decides; an answer
 *     that was lost is one that is not chosen. An acknowledged raise is known
 *     at once: a client that learns of it later can only grant later.
 *   - A request that is refused is one that never takes effect.
 *   - When an acquisition is over, its locks have expired: they may at any
 *     moment, and keep nobody but others out. What is left of it are requests
 *     under way, each of which moves a counter once.
 *   - Nodes are interchangeable, and so are acquisitions. Of the states that
 *     differ by an order alone one is looked at: settle() sorts them after each
 *     step (-DEVERY_ORDER: not). G2 is therefore checked of t, which is what
 *     the proof shows: the place of the node decides nothing.
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
byte late[N];  /* requests of acquisitions that are over, under way */
bool admitted[N];

byte answer[A * N];   /* 0: none; of an acquisition under way */
bool handled[A * N];  /* the request took effect */
bool persists[A * N]; /* phase 2: the node stands at t or above */
byte t_of[A];         /* phase 2: the t that was chosen; 0: phase 1 */
byte i_of[A];         /* phase 2: the node that answered exactly t */
byte floor[A];        /* highest t returned before it began */
byte token_t[A];      /* what it was granted; 0: nothing */
byte token_i[A];
bool begun[A];
bool over[A];
byte highest;

/* while a node that forgot is out */
bool waited_for[A]; /* under way when it forgot, and still */
byte waiting;       /* how many of these */
bool seen[N];       /* was read for the re-admission */

#ifdef EVERY_ORDER
#define SETTLE skip
#else
#define SETTLE c_code { settle(); }
#endif
c_code {
  /* All that refers to node n. */
  #define COLUMN (5 + 5 * A)
  static void column(int n, unsigned char *c) {
    int a, j = 0;
    c[j++] = now.counter[n]; c[j++] = now.late[n]; c[j++] = now.owner[n];
    c[j++] = now.admitted[n]; c[j++] = now.seen[n];
    for (a = 0; a < A; a++) {
      c[j++] = now.answer[a * N + n];
      c[j++] = now.handled[a * N + n];
      c[j++] = now.persists[a * N + n];
      c[j++] = now.t_of[a] > 0 && now.i_of[a] == n;
      c[j++] = now.token_t[a] > 0 && now.token_i[a] == n;
    }
  }
  static int rank(int a) {
    /* over, by what it was granted; under way; not begun */
    if (!now.begun[a]) return 3 << 16;
    if (!now.over[a])
      return (2 << 16) + (now.waited_for[a] << 12) + (now.t_of[a] << 6) +
             now.floor[a];
    return (now.token_t[a] << 4) + now.token_i[a];
  }
  static void settle(void) {
    int order[A], place[N], a, n, k;
    State was = now;
    unsigned char columns[N][COLUMN];
    for (a = 0; a < A; a++) order[a] = a;
    for (a = 1; a < A; a++)
      for (k = a; k > 0 && rank(order[k]) < rank(order[k - 1]); k--) {
        int x = order[k]; order[k] = order[k - 1]; order[k - 1] = x;
      }
    for (a = 0; a < A; a++) {
      int from = order[a];
      now.begun[a] = was.begun[from]; now.over[a] = was.over[from];
      now.waited_for[a] = was.waited_for[from];
      now.t_of[a] = was.t_of[from]; now.i_of[a] = was.i_of[from];
      now.floor[a] = was.floor[from];
      now.token_t[a] = was.token_t[from]; now.token_i[a] = was.token_i[from];
      for (n = 0; n < N; n++) {
        now.answer[a * N + n] = was.answer[from * N + n];
        now.handled[a * N + n] = was.handled[from * N + n];
        now.persists[a * N + n] = was.persists[from * N + n];
        if (was.owner[n] == from + 1) now.owner[n] = a + 1;
      }
    }
    was = now;
    for (n = 0; n < N; n++) { place[n] = n; column(n, columns[n]); }
    for (n = 1; n < N; n++)
      for (k = n; k > 0 && memcmp(columns[place[k]], columns[place[k - 1]],
                                  COLUMN) < 0; k--) {
        int x = place[k]; place[k] = place[k - 1]; place[k - 1] = x;
      }
    for (n = 0; n < N; n++) {
      int from = place[n];
      now.counter[n] = was.counter[from]; now.late[n] = was.late[from];
      now.owner[n] = was.owner[from];
      now.admitted[n] = was.admitted[from]; now.seen[n] = was.seen[from];
      for (a = 0; a < A; a++) {
        now.answer[a * N + n] = was.answer[a * N + from];
        now.handled[a * N + n] = was.handled[a * N + from];
        now.persists[a * N + n] = was.persists[a * N + from];
        if (was.t_of[a] > 0 && was.i_of[a] == from) now.i_of[a] = n;
        if (was.token_t[a] > 0 && was.token_i[a] == from) now.token_i[a] = n;
      }
    }
  }
}

/* The node's script: one atomic step. */
inline handle(a, n) {
  handled[AT(a, n)] = true;
  owner[n] = a + 1;
  counter[n]++;
  if
  :: t_of[a] == 0 -> answer[AT(a, n)] = counter[n]
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
  if
  :: waited_for[a] -> waited_for[a] = false; waiting--
  :: else
  fi;
  t_of[a] = 0; i_of[a] = 0; floor[a] = 0;
  k = 0;
  do
  :: k < N ->
     if
     :: handled[AT(a, k)] -> skip
     :: else -> late[k]++
     fi;
     if
     :: owner[k] == a + 1 -> owner[k] = 0
     :: else
     fi;
     answer[AT(a, k)] = 0; persists[AT(a, k)] = false;
     handled[AT(a, k)] = false;
     k++
  :: else -> break
  od;
  k = 0
}

inline grant(a, t, i) {
  token_t[a] = t;
#ifndef PLAIN_T
  token_i[a] = i;
#endif
  assert(t > floor[a]); /* G2 */
  k = 0;
  do
  :: k < A ->
     assert(k == a || token_t[k] != t || token_i[k] != token_i[a]); /* G1 */
     k++
  :: else -> break
  od;
  if
  :: t > highest -> highest = t
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
          od;
          k = 0
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
  :: atomic {                                                            \
       begun[a] && !over[a] && !handled[AT(a, n)] && admitted[n] &&      \
           owner[n] == 0 -> handle(a, n); SETTLE                         \
     }                                                                   \
  :: atomic {                                                            \
       t_of[a] > 0 && answer[AT(a, n)] > 0 && !persists[AT(a, n)] &&     \
           admitted[n] && owner[n] == a + 1 -> raise(a, n); SETTLE       \
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

#define EXP(n)                                                           \
  :: atomic { owner[n] != 0 -> owner[n] = 0; SETTLE }                    \
  :: atomic {                                                            \
       late[n] > 0 && admitted[n] && owner[n] == 0 ->                    \
           late[n]--; counter[n]++; SETTLE                               \
     }

/* Acquisitions begin in the order of their number. */
#define CLIENT(a, before)                                                \
  :: atomic { !begun[a] && (before) ->                                   \
              begun[a] = true; floor[a] = highest; SETTLE }              \
  :: atomic { begun[a] && !over[a] && t_of[a] == 0 -> decide(a); SETTLE } \
  :: atomic { t_of[a] > 0 -> conclude(a); SETTLE }                       \
  :: atomic { begun[a] && !over[a] -> d_step { finish(a) }; SETTLE }     \
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
  byte reads, most;
  byte n, k;

end:
  do
  :: atomic {
       losses > 0 ->
       losses--;
       select(n : 0 .. N - 1);
       counter[n] = 0; owner[n] = 0;
#ifndef NO_QUARANTINE
       admitted[n] = false;
       k = 0;
       do
       :: k < A ->
          if
          :: begun[k] && !over[k] -> waited_for[k] = true; waiting++
          :: else
          fi;
          k++
       :: else -> break
       od;
       k = 0;
#endif
       n = 0;
       SETTLE
     }
#ifndef NO_QUARANTINE
#ifndef NO_WAIT
     /* one max TTL: everything that counted the old memory is over */
     waiting == 0;
#endif
     do
     :: atomic {
          reads < READS ->
          select(k : 0 .. N - 1);
          if
          :: admitted[k] && !seen[k] ->
             seen[k] = true;
             reads++;
             if
             :: counter[k] > most -> most = counter[k]
             :: else
             fi
          :: else
          fi;
          k = 0;
          SETTLE
        }
     :: atomic {
          reads == READS ->
          d_step {
            k = 0;
            do
            :: k < N ->
               if
               :: !admitted[k] && counter[k] < most -> counter[k] = most
               :: else
               fi;
               admitted[k] = true; seen[k] = false;
               k++
            :: else -> break
            od;
            k = 0; most = 0; reads = 0
          };
          SETTLE;
          break
        }
     od
#endif
  od
}
#endif
