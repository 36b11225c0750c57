"""A federation as a scikit-learn classifier, from one line to a curve of accuracy against ε."""

# %% Fit: ten clients, one secure sum, the same bits as with all records in one place
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import secagg

X, y = load_breast_cancer(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = make_pipeline(StandardScaler(), secagg.SecureSumClassifier(clients=10))
model.fit(X_train, y_train)
print(f"accuracy {model.score(X_test, y_test):.3f}, of one patient {model.predict_proba(X_test[:1]).round(3)}")

# %% What ran: members in the sum, protection, promise
run = model[-1].run_
print(run.summary())

# %% Say who holds which record: an id for each, as a table's column gives it
hospital = (X_train[:, 0] > 14).astype(int)
by_hospital = secagg.SecureSumClassifier().fit(X_train, y_train, clients=hospital)
print(by_hospital.run_.clients, "clients")

# %% With noise: what a promise about every single record costs
for epsilon in (0.5, 2.0, 8.0):
    promise = {"epsilon": epsilon, "delta": 1e-5, "adjacency": "add-remove"}
    private = make_pipeline(StandardScaler(), secagg.SecureSumClassifier(clients=10, **promise)).fit(X_train, y_train)
    print(f"epsilon {epsilon}: accuracy {private.score(X_test, y_test):.3f}")

# %% Keep the head with its model card; `secagg predict --head` takes it
print(sorted(path.name for path in run.save("breast-cancer-head").iterdir()))
