package survey

// Knows reports whether v would learn how the holder with this path ends.
func (v *Viewer) Knows(path string) bool {
	m := v.memory.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.data[path]
	return s != nil && m.hears(s)
}
