-- Something to follow. Put your own tables here.
CREATE TABLE customers (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    city text
);

CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customers,
    status text NOT NULL DEFAULT 'placed',
    total numeric(12, 2) NOT NULL,
    placed_at timestamptz NOT NULL DEFAULT now()
);

INSERT INTO customers (name, city) VALUES ('Ada', 'Ghent'), ('Bao', 'Porto'), ('Cleo', NULL);
INSERT INTO orders (customer_id, total) VALUES (1, 19.90), (2, 5.00), (1, 120.50);
