package embedded

import "os"

// WithSync returns cfg with another way to make what was written to a file last.
func (cfg Config) WithSync(sync func(*os.File) error) Config {
	cfg.sync = sync
	return cfg
}

// WithLogSize returns cfg with another size at which the data file is replaced by a snapshot.
func (cfg Config) WithLogSize(n int64) Config {
	cfg.logSize = n
	return cfg
}

// Load loads the payloads of a data file's records.
func Load(payloads ...[]byte) error {
	l := newLoader()
	for _, p := range payloads {
		if err := l.load(p); err != nil {
			return err
		}
	}
	return nil
}

// Records returns the offsets of the records of a data file, and the number of bytes after the last
// one.
func Records(content []byte) (offsets []int, torn int, err error) {
	at := fileHead
	_, torn, err = parseFile(content, func(payload []byte) error {
		offsets = append(offsets, at)
		at += recordHead + len(payload)
		return nil
	})
	return offsets, torn, err
}
