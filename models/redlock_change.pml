/* redlock_change.pml: changing the servers of a Redlock cluster.
 *
 * M nodes. Those of the mask OLD are the cluster at first, those of NEW are
 * to be it. A acquisitions, each by one of the two lists, which vote, are
 * raised and are granted as in redlock.pml; what may go wrong is the same,
 * and G1 and G2 are to hold over both clusters together.
 *
 * One change, which may stop at any step: reserve, close, confirm, open. It
 * closes any of the old nodes, as some may not answer. A node may lose its
 * memory (LOSSES times) and is readmitted by either list that names it.
 *
 * Smaller than there, without losing behaviour: a lease ends at any moment,
 * so a node that votes need not be free, only its last voter can be raised;
 * and a vote that is refused is one that is never cast.
 *
 * Left out: the wait for leases to end. No token rests on it, and in this
 * model, as in the other, a lease may end at any moment.
 *
 * Mutants (-D...), each of which must fail:
 *   CLOSE=n      n closed nodes are enough; OLD's N-Q, and with LOSSES and an
 *                even N also N-Q+1
 *   NO_FLOOR     the new nodes begin where they are
 *   VOTES_ON     a closed node still votes for the old cluster
 */

#ifndef M
#define M 4
#endif
#ifndef OLD
#define OLD 7
#define N_OLD 3
#endif
#ifndef NEW
#define NEW 11
#define N_NEW 3
#endif
#ifndef A
#define A 2
#endif
#ifndef LOSSES
#define LOSSES 0
#endif

#define Q_OLD (N_OLD / 2 + 1)
#define Q_NEW (N_NEW / 2 + 1)
#ifndef CLOSE
#define CLOSE Q_OLD
#endif
#define Q(list) (list == 1 -> Q_OLD : Q_NEW)
#define READS(list) (list == 1 -> N_OLD - Q_OLD + 1 : N_NEW - Q_NEW + 1)
#define NAMES(list, n) ((list == 1 -> OLD : NEW) & (1 << (n)))
#define AT(a, n) ((a) * M + (n))

#define BLANK 0
/* 1: member of the old cluster, 2: of the new one */
#define CLOSED 3 /* or reserved */

#ifdef VOTES_ON
#define VOTES(a, n)                                                      \
  (marker[n] == list[a] || (marker[n] == CLOSED && list[a] == 1))
#else
#define VOTES(a, n) (marker[n] == list[a])
#endif

byte counter[M];
byte owner[M];
byte marker[M];

byte list[A]; /* 1: by the old list, 2: by the new one */
byte answer[A * M];
bool handled[A * M];
bool persists[A * M];
byte t_of[A];
byte i_of[A];
byte floor[A];
byte token[A];
bool begun[A];
bool over[A];
byte highest;

inline handle(a, n) {
  handled[AT(a, n)] = true;
  if
  :: VOTES(a, n) ->
     owner[n] = a + 1;
     counter[n]++;
     if
     :: !over[a] && t_of[a] == 0 -> answer[AT(a, n)] = counter[n]
     :: else
     fi
  :: else
  fi
}

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
  :: k < M ->
     answer[AT(a, k)] = 0; persists[AT(a, k)] = false;
     handled[AT(a, k)] = handled[AT(a, k)] || !NAMES(list[a], k);
     k++
  :: else -> break
  od;
  k = 0
}

inline grant(a, t, i) {
  token[a] = 16 * (t) + (i);
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

/* The client decides by some of the answers; see redlock.pml. */
inline decide(a) {
  k = 0; have = 0; chosen = 0;
  do
  :: k < M ->
     if
     :: answer[AT(a, k)] > 0 -> chosen = chosen | (1 << k); have++
     :: true
     fi;
     k++
  :: else -> break
  od;
  if
  :: have >= Q(list[a]) ->
     d_step {
       t = 0;
       do
       :: t++;
          have = 0; k = 0;
          do
          :: k < M ->
             if
             :: (chosen & (1 << k)) && answer[AT(a, k)] <= t -> have++
             :: else
             fi;
             k++
          :: else -> break
          od;
          if
          :: have >= Q(list[a]) -> break
          :: else
          fi
       od;
       have = 0; k = 0; i = 0;
       do
       :: k < M ->
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
       if
       :: have >= Q(list[a]) -> grant(a, t, i)
       :: else ->
          t_of[a] = t; i_of[a] = i; k = 0;
          do
          :: k < M ->
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

inline conclude(a) {
  d_step {
    have = 0; k = 0;
    do
    :: k < M ->
       if
       :: persists[AT(a, k)] -> have++
       :: else
       fi;
       k++
    :: else -> break
    od;
    if
    :: have >= Q(list[a]) -> grant(a, t_of[a], i_of[a])
    :: else
    fi;
    have = 0; k = 0
  }
}

#define NODE(a, n)                                                       \
  :: atomic {                                                            \
       begun[a] && NAMES(list[a], n) && !handled[AT(a, n)] ->            \
       handle(a, n)                                                      \
     }                                                                   \
  :: atomic {                                                            \
       t_of[a] > 0 && answer[AT(a, n)] > 0 && !persists[AT(a, n)] &&     \
           VOTES(a, n) && owner[n] == a + 1 -> raise(a, n)               \
     }

#if M == 3
#define NODES(a) NODE(a, 0) NODE(a, 1) NODE(a, 2)
#elif M == 4
#define NODES(a) NODE(a, 0) NODE(a, 1) NODE(a, 2) NODE(a, 3)
#else
#define NODES(a) NODE(a, 0) NODE(a, 1) NODE(a, 2) NODE(a, 3) NODE(a, 4)
#endif

#define CLIENT(a, before)                                                \
  :: atomic { !begun[a] && (before) ->                                   \
              select(k : 1 .. 2); list[a] = k; k = 0;                    \
              begun[a] = true; floor[a] = highest }                      \
  :: atomic { begun[a] && !over[a] && t_of[a] == 0 -> decide(a) }        \
  :: atomic { t_of[a] > 0 -> conclude(a) }                               \
  :: atomic { begun[a] && !over[a] -> d_step { finish(a) } }             \
  NODES(a)

bool ready;

active proctype world() {
  byte k, have, chosen, t, i;

  atomic {
    do
    :: k < M ->
       if
       :: NAMES(1, k) ->
          marker[k] = 1;
          counter[k] = 1
       :: else
       fi;
       k++
    :: else -> break
    od;
    k = 0; t = 0; ready = true
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
  od
}

active proctype change() {
  byte n, m, shut, remember;
  byte lost; /* bit k: node k was closed, but had forgotten before */

end:
  ready;
  atomic {
    do
    :: n < M ->
       if
       :: NAMES(2, n) && marker[n] == BLANK -> marker[n] = CLOSED
       :: else
       fi;
       n++
    :: else -> break
    od;
    n = 0
  }
  do
  :: atomic {
       n < M ->
       if
       :: marker[n] == 1 ->
          marker[n] = CLOSED;
          shut++; remember++;
          if
          :: counter[n] > m -> m = counter[n]
          :: else
          fi
       :: marker[n] == BLANK && NAMES(1, n) ->
          marker[n] = CLOSED; shut++; lost = lost | (1 << n)
       :: true /* no answer */
       fi;
       n++
     }
  :: atomic { n == M -> n = 0; break }
  od;
  atomic {
    shut = 0; remember = 0; m = 0;
    do
    :: n < M ->
       if
       :: NAMES(1, n) && marker[n] == CLOSED ->
          shut++;
          if
          :: lost & (1 << n) -> skip
          :: else ->
             remember++;
             if
             :: counter[n] > m -> m = counter[n]
             :: else
             fi
          fi
       :: else
       fi;
       n++
    :: else -> break
    od;
    n = 0
  }
end_too_few:
  atomic {
    shut >= CLOSE &&
#if CLOSE == Q_OLD
        remember >= N_OLD - Q_OLD + 1 ->
#else
        remember >= CLOSE ->
#endif
    shut = 0; remember = 0; lost = 0
#ifdef NO_FLOOR
    ; m = 0
#endif
  }
  do
  :: atomic {
       n < M ->
       if
       :: NAMES(2, n) && marker[n] == CLOSED ->
          marker[n] = 2;
          if
          :: counter[n] < m -> counter[n] = m
          :: else
          fi
       :: else
       fi;
       n++
     }
  :: atomic { n == M -> n = 0; m = 0; break }
  od
}

#if LOSSES > 0
active proctype forgetting() {
  byte losses = LOSSES;
  byte n, k, m, reads, by;
  byte waits; /* bit a: acquisition a was under way at the loss */
  byte seen;

end:
  do
  :: atomic {
       ready && losses > 0 ->
       losses--;
       select(n : 0 .. M - 1);
       counter[n] = 0; owner[n] = 0; marker[n] = BLANK;
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
       select(by : 1 .. 2)
     }
     do
     :: atomic { k < A && (!(waits & (1 << k)) || over[k]) -> k++ }
     :: atomic { k == A -> k = 0; break }
     od;
     do
     :: atomic {
          reads < READS(by) ->
          select(k : 0 .. M - 1);
          if
          :: NAMES(by, k) && marker[k] == by && !(seen & (1 << k)) ->
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
          reads == READS(by) ->
          if
          :: marker[n] == BLANK && NAMES(by, n) ->
             if
             :: counter[n] < m -> counter[n] = m
             :: else
             fi;
             marker[n] = by
          :: else
          fi;
          m = 0; reads = 0; seen = 0; n = 0; waits = 0; by = 0;
          break
        }
     od
  od
}
#endif
