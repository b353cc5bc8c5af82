package laws

import (
	"regexp"
	"slices"
)

// table has the verbs of all recipes. The name of a row is that of the verb, as Go has it with its
// package, and then what is special about this call of it: a test demands a row for each exported
// verb.
var table = slices.Concat(lockRows, rwlockRows, semaphoreRows, onceRows, electionRows, groupRows, queueRows,
	valueRows, barrierRows, doublebarrierRows, protocolRows, lineRows)

// racing matches verbs whose goroutines race: their packets come in another order each time. A run
// must know their outcomes, but not at which packet each comes.
var racing = regexp.MustCompile(`^(queue|doublebarrier)\.|^election\.Election\.Listen|^rwlock\.RWMutex\.RLock shared|^lock\.Mutex\.Lock in a local queue|^lock\..*(Revoked?(, again)?$|linger)|^line\.Line\.UpdateData|^once\.Once\.Do run elsewhere`)
