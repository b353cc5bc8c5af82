package embedded

import "os"

// WithSync returns cfg with another way to make what was written to a file last.
func (cfg Config) WithSync(sync func(*os.File) error) Config {
	cfg.sync = sync
	return cfg
}

// WithLogSize returns cfg with another size at which a log is replaced by a snapshot.
func (cfg Config) WithLogSize(n int64) Config {
	cfg.logSize = n
	return cfg
}

// LoadLog loads the payload of a record of a log into the state of a new server.
func LoadLog(payload []byte) error {
	l := newLoader()
	l.tree = newTree()
	return l.transactions(payload)
}

// LoadSnapshot loads the payload of a record of a snapshot.
func LoadSnapshot(payload []byte) error { return newLoader().entries(payload) }

// Records returns the offsets of the records of a log, and the number of bytes after the last one.
func Records(content []byte) (offsets []int, torn int, err error) {
	f, err := parseFile(kindLog, content)
	return f.offsets, f.torn, err
}
