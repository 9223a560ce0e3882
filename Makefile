# What a contributor types. `go test ./...` is the inner loop; this is the rest.
.PHONY: test check fuzz integration bench accuracy

test:
	go test ./...

check: test
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

integration:
	go test -tags integration -count=1 ./...

fuzz:
	@for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $${FUZZTIME:-10s} $$pkg || exit 1; \
	  done; done

bench:
	go test -run '^$$' -bench . -benchmem ./...
	go run ./internal/ratios

# Verdicts over public commands, example cases and the machine's libraries.
accuracy:
	go run ./internal/accuracy
