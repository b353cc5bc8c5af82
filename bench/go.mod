module github.com/zkrecipes/zkrecipes/bench

go 1.25.0

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/zkrecipes/zkrecipes v0.0.0
	github.com/zkrecipes/zkrecipes/internal/real v0.0.0
	github.com/zkrecipes/zkrecipes/recipestest/ensemble v0.0.0
)

require github.com/cenkalti/backoff/v4 v4.3.0 // indirect
