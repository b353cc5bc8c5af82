package sim

// StuckOnce makes a schedule count as stuck once a channel is closed, and returns that.
func StuckOnce() (stuck chan struct{}) {
	stuck = make(chan struct{})
	afterWallLimit = func(f func()) (stop func()) {
		go func() {
			<-stuck
			f()
		}()
		return func() {}
	}
	return stuck
}
