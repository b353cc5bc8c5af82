package laws

import (
	"slices"
	"time"
)

// table has the verbs of all recipes. The name of a row begins with the name of the verb (as Go has
// it with its package). Then comes whatever is special about this call. A test demands a row for
// each exported verb.
var table = slices.Concat(lockRows, rwlockRows, semaphoreRows, onceRows, electionRows, groupRows, queueRows,
	valueRows, barrierRows, doublebarrierRows, protocolRows, lineRows)

// Virtual returns a player of all verbs on a fresh embedded server for each cell, in virtual time.
func Virtual() *Player {
	return &Player{rows: table, quiet: quiet, cells: 250, known: true}
}

// Real returns a player on the servers of connect, in real time. It plays at most that many verbs,
// and cells of each law. A law takes half a minute because all cells are played at once. A law that
// needs more than a server and a network skips.
func Real(connect string, cells int) *Player {
	return &Player{rows: table, connect: connect, quiet: 5 * time.Second, cells: cells, known: true}
}
