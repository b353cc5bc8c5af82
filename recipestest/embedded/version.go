package embedded

// The versions of ZooKeeper that a server can behave like.
const (
	version38 = "3.8"
	version39 = "3.9"
)

// is39 reports whether the server behaves like ZooKeeper 3.9.
func (cfg Config) is39() bool { return cfg.Version == version39 }

// release is the version that four-letter words report, in a form that monitoring tools can parse.
func (cfg Config) release() string {
	patch := ".0"
	if cfg.is39() {
		patch = ".3"
	}
	return cfg.Version + patch + "-zkrecipes-embedded, built on 01/01/2025 00:00 UTC"
}
