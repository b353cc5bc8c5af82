package sim

import (
	"fmt"
	"os"
	"runtime/debug"
	"time"
)

// wallLimit is the time on the wall clock after which a schedule is taken to be stuck. One takes
// milliseconds, or a second on a busy machine.
const wallLimit = time.Minute

// watch ends the process if a schedule has not ended in time, and prints all goroutines. A schedule
// that is stuck may hold its bubble for good, and then nothing in the bubble could end it. stop
// ends the watch. It must be called outside the bubble, and so watches by the wall clock.
func watch(test string, seed uint64, only string) (stop func()) {
	return afterWallLimit(func() {
		fmt.Fprintf(os.Stderr, "sim: seed %d has not ended for %v. Replay it with\n\n%s\n\n", seed, wallLimit, replay(test, seed, only))
		debug.SetTraceback("all")
		panic(fmt.Sprintf("sim: seed %d is stuck", seed))
	})
}

// afterWallLimit calls f after wallLimit, unless it is stopped. Tests replace it.
var afterWallLimit = func(f func()) (stop func()) {
	late := time.AfterFunc(wallLimit, f)
	return func() { late.Stop() }
}
