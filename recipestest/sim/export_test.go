package sim

import "time"

// Search reports whether a model allows a history.
var Search = search

// SetWallLimit sets after which time on the wall clock a schedule is taken to be stuck.
func SetWallLimit(d time.Duration) { wallLimit = d }
