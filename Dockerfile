# What the tests need. To run them:
#
#	docker build -t gorun . && docker run --rm --privileged gorun
FROM golang:1.26-bookworm
WORKDIR /gorun
COPY Makefile ./
COPY .ci .ci
RUN make deps
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ENV CI=true
CMD ["make", "deps", "test"]
